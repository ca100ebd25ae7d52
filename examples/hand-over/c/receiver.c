/* A receiver in C: answers each request that Forebay hands over with its first line, on the client's own socket, and
 * gives the connection back. One process for each link: cc -o receiver receiver.c && ./receiver /run/app/receiver.sock */
#define _GNU_SOURCE
#include <endian.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct header { char magic[4]; uint8_t version, flags; uint16_t lines; uint32_t request; uint64_t body_left; } __attribute__((packed));
struct report { char kind; uint8_t flags; uint16_t status; uint32_t reserved; uint64_t bytes; } __attribute__((packed));

static int say(int link, char kind, int status, uint64_t bytes) {
    struct report report = { kind, 0, htobe16(status), 0, htobe64(bytes) };
    return send(link, &report, sizeof report, MSG_NOSIGNAL) == sizeof report;
}

/* The header of the next request, and the socket that comes with its first byte; -1 at the end of the link. */
static int take(int link, struct header *header) {
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = { header, sizeof *header };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    if (recvmsg(link, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof *header) return -1;
    struct cmsghdr *beside = CMSG_FIRSTHDR(&message);
    if (!beside || beside->cmsg_type != SCM_RIGHTS || memcmp(header->magic, "FBHO\x01", 5)) return -1;
    return *(int *)CMSG_DATA(beside);
}

static void serve(int link) {
    static char text[1 << 20], answer[512];
    struct header header;
    for (int client; (client = take(link, &header)) >= 0;) {
        ssize_t lines = be16toh(header.lines), request = be32toh(header.request);
        if (lines + request > (ssize_t)sizeof text || !say(link, 'T', 0, 0)) return;
        if (recv(link, text, lines + request, MSG_WAITALL) != lines + request) return;
        const char *first = text + lines, *close_too = header.flags & 2 ? "Connection: close\r\n" : "";
        int length = strcspn(first, "\r") < 200 ? strcspn(first, "\r") : 200;
        int count = sprintf(answer, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%.*s\n", close_too, length + 1, length, first);
        int is_sent = send(client, answer, count, MSG_NOSIGNAL) == count;
        close(client);
        /* what is left of a body would be taken for the next request */
        say(link, is_sent && !*close_too && header.body_left == 0 ? 'B' : 'D', 200, length + 1);
    }
}

int main(int count, char **words) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (count != 2) return 2;
    strncpy(address.sun_path, words[1], sizeof address.sun_path - 1);
    unlink(words[1]);
    signal(SIGCHLD, SIG_IGN);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), link;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) return perror(words[1]), 1;
    for (; (link = accept(listener, 0, 0)) >= 0; close(link))
        if (fork() == 0) return close(listener), serve(link), 0;
    return 1;
}
