"""disks.py - a small disk that fills up, and the other end of shim.c.

    disk = scene.keep(Disk(scene.folder / "disk", kib=2048))     # where mounting is allowed
    disk.fill(); disk.free(); disk.remount("ro")

    shim = Shim(scene.folder)
    gate = scene.gateway(redis=redis, env=shim.env)
    shim.fail(Shim.SYNC, errno.EIO, nth=3)                       # from now on
    image = shim.after_power_cut(image, random, keep=0.5)        # after a SIGKILL
"""
import contextlib
import errno
import mmap
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from harness import preload

FILES = {"d": "fencegate.db", "w": "fencegate.db-wal", "j": "fencegate.db-journal"}
SECTOR = 512


# ---- Small disks ---------------------------------------------------------------------------------


def take_own_mounts():
    """Starts the program again where what it mounts is seen by itself and its children only, and is
    gone with them. Where that is not allowed, may_mount() says no."""
    if "FG_OWN_MOUNTS" in os.environ:
        return
    for wrapper in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        with tempfile.TemporaryDirectory() as folder:
            probe = [*wrapper, "mount", "-t", "tmpfs", "none", folder]
            with contextlib.suppress(OSError):
                if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                    os.environ["FG_OWN_MOUNTS"] = "1"
                    os.execvp(wrapper[0], [*wrapper, sys.executable, *sys.argv])
    os.environ["FG_OWN_MOUNTS"] = ""


def may_mount():
    if os.environ.get("FG_OWN_MOUNTS"):
        return True
    print("skipped: mounting a tmpfs is not allowed here")
    return False


class Disk:
    def __init__(self, folder, kib):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.filler = self.folder / "filler"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", self.folder], check=True)

    def fill(self):
        """Down to the last byte."""
        with open(self.filler, "ab", buffering=0) as file:
            chunk = 65536
            while chunk:
                try:
                    file.write(bytes(chunk))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    chunk //= 2

    def free(self):
        self.filler.unlink()

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.folder], check=True)

    def close(self):
        subprocess.run(["umount", "--lazy", self.folder], check=False)


# ---- The shim ------------------------------------------------------------------------------------


class Shim:
    """Of one gateway at a time; see shim.c."""

    SYNC, WRITE, TRUNCATE, UNLINK = 1, 2, 3, 4
    SHORT, KILL = 0, -1
    FIELDS = ("call", "file", "countdown", "for_ever", "error", "sync_us", "lying", "fired")

    def __init__(self, folder):
        self.control, self.journal = pathlib.Path(folder, "control"), pathlib.Path(folder, "journal")
        self.control.write_bytes(bytes(8 * 13))
        with open(self.control, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.env = {**preload(folder, "shim.c"), "SHIM_CONTROL": str(self.control)}

    def journaling(self):
        """The environment that also notes every change."""
        self.journal.unlink(missing_ok=True)
        return {**self.env, "SHIM_JOURNAL": str(self.journal)}

    def set(self, **fields):
        for name, value in fields.items():
            struct.pack_into("=q", self.map, 8 * self.FIELDS.index(name), value)

    def get(self, name):
        return struct.unpack_from("=q", self.map, 8 * self.FIELDS.index(name))[0]

    def count(self, call):
        """How many of these calls there were."""
        return struct.unpack_from("=q", self.map, 8 * (len(self.FIELDS) + call))[0]

    def fail(self, call, error, nth=1, for_ever=False, file=None):
        self.set(call=0, file=ord(file) if file else 0, countdown=nth, for_ever=int(for_ever),
                 error=error, fired=0)
        self.set(call=call)

    def heal(self):
        self.map[:] = bytes(len(self.map))

    # ---- Power cuts ----

    def after_power_cut(self, before, random, keep):
        """What stands on the disk, as {file: bytes}: `before` is what stood there when the gateway was
        started; of the changes since a file's last sync each is kept with probability `keep`, some of
        them in part."""
        entries = list(self._entries())
        synced = {entry[1]: at for at, entry in enumerate(entries) if entry[0] == "S"}
        image = {name: bytearray(content) for name, content in before.items()}
        for at, (what, file, offset, data) in enumerate(entries):
            certain = at < synced.get("x" if what == "D" else file, -1)
            if what == "S" or (not certain and random.random() >= keep):
                continue
            if what == "D":
                image.pop(file, None)
                continue
            content = image.setdefault(file, bytearray())
            if what == "T":
                del content[offset:]
                content.extend(bytes(offset - len(content)))
            elif certain or random.random() < 0.7:
                _put(content, offset, data)
            else:  # torn: some of its sectors
                for part in range(0, len(data), SECTOR):
                    if random.random() < 0.5:
                        _put(content, offset + part, data[part:part + SECTOR])
        return image

    def _entries(self):
        raw = self.journal.read_bytes() if self.journal.exists() else b""
        at = 0
        while at + 24 <= len(raw):
            what, file, offset, count = struct.unpack_from("=cc6xqq", raw, at)
            if at + 24 + count > len(raw):
                return  # the kill came in the middle of it
            yield what.decode(), file.decode(), offset, raw[at + 24:at + 24 + count]
            at += 24 + count


def _put(content, offset, data):
    content.extend(bytes(max(0, offset - len(content))))
    content[offset:offset + len(data)] = data


def write_image(folder, image):
    for path in pathlib.Path(folder).glob("fencegate.db*"):
        path.unlink()
    for file, content in image.items():
        pathlib.Path(folder, FILES[file]).write_bytes(content)
