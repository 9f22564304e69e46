/* terminal.c - giving the terminal to the job and taking it back (terminal.h). */
#include "client/cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

bool terminal_give(struct terminal *terminal, pid_t group)
{
    if (terminal->fd < 0)
        terminal->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != getpgrp() ||
        tcgetattr(terminal->fd, &terminal->modes) < 0 || tcsetpgrp(terminal->fd, group) < 0)
        return false;
    terminal->given = true;
    return true;
}

void terminal_take_back(struct terminal *terminal, bool killed)
{
    if (terminal->given) {
        tcsetpgrp(terminal->fd, getpgrp());
        if (killed)
            tcsetattr(terminal->fd, TCSANOW, &terminal->modes);
    }
    if (terminal->fd >= 0)
        close(terminal->fd);
    *terminal = (struct terminal){.fd = TERMINAL_NONE};
}
