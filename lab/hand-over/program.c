/* One program, asked in two ways, for lab/hand-over/run: `program receiver PATH MS` is handed requests over with their
 * sockets, `program http PATH MS` is asked by a proxy. Each answers the same bytes after MS milliseconds; a process for
 * each connection, as servers do that fork before they serve. */
#define _GNU_SOURCE
#include <endian.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct header { char magic[4]; uint8_t version, flags; uint16_t lines; uint32_t request; uint64_t left; } __attribute__((packed));
struct report { char kind; uint8_t flags; uint16_t status; uint32_t reserved; uint64_t bytes; } __attribute__((packed));

static char text[1 << 20];

static int say(int link, char kind, int status, uint64_t bytes) {
    struct report report = { kind, 0, htobe16(status), 0, htobe64(bytes) };
    return send(link, &report, sizeof report, MSG_NOSIGNAL) == sizeof report;
}

static int answer(int socket, int last) {
    static char all[700];
    int head = sprintf(all, "HTTP/1.1 200 OK\r\n%sContent-Length: 512\r\n\r\n", last ? "Connection: close\r\n" : "");
    memset(all + head, 'x', 512);
    return send(socket, all, head + 512, MSG_NOSIGNAL) == head + 512;
}

static void receive(int link, int ms) {
    for (;;) {
        char space[CMSG_SPACE(sizeof(int))];
        struct iovec part = { text, sizeof text };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
        /* an offer of a small request is there at once */
        ssize_t count = recvmsg(link, &message, MSG_CMSG_CLOEXEC);
        struct header *header = (struct header *)text;
        int client;
        if (count < (ssize_t)sizeof *header || !CMSG_FIRSTHDR(&message)) return;
        if (count != (ssize_t)sizeof *header + be16toh(header->lines) + be32toh(header->request)) return;
        memcpy(&client, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof client);
        /* with flag 4 it is taken by reading, unless the link is shut by now */
        char byte;
        if (!(header->flags & 4)) { if (!say(link, 'T', 0, 0)) return; }
        else if (recv(link, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;
        if (ms) usleep(ms * 1000);
        int last = header->flags & 2, sent = answer(client, last);
        close(client);
        say(link, sent && !last ? 'B' : 'D', 200, 512);
    }
}

static void http(int socket, int ms) {
    while (recv(socket, text, sizeof text, 0) > 0) {
        if (ms) usleep(ms * 1000);
        if (!answer(socket, 0)) return;
    }
}

/* The time of a process that was waited for counts for the program. */
static void reap(int number) {
    (void)number;
    while (waitpid(-1, 0, WNOHANG) > 0) {}
}

int main(int count, char **words) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (count != 4) return 2;
    strncpy(address.sun_path, words[2], sizeof address.sun_path - 1);
    unlink(words[2]);
    signal(SIGCHLD, reap);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), socket;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) return perror(words[2]), 1;
    for (; (socket = accept(listener, 0, 0)) >= 0; close(socket))
        if (fork() == 0) return close(listener), (*words[1] == 'r' ? receive : http)(socket, atoi(words[3])), 0;
    return 1;
}
