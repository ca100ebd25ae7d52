/* Takes TCP_NOTSENT_LOWAT away, or has it be UNSENT_BYTES, for `lab/delay/run`: what a server does without that bound,
 * or with another one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

int setsockopt(int socket, int level, int name, const void *value, socklen_t length) {
  int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
  if (level == IPPROTO_TCP && name == TCP_NOTSENT_LOWAT) {
    const char *other = getenv("UNSENT_BYTES");
    int bytes = other ? atoi(other) : 0;
    return other ? next(socket, level, name, &bytes, sizeof(bytes)) : 0;
  }
  return next(socket, level, name, value, length);
}
