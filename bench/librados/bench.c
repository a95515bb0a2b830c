// Loads a pool through librados, as the program that "cephclient bench" is compared with.
//
// A fixed number of operations is under way; each begins in the callback of the one before. Reads are of the
// objects that "cephclient bench write" left. It prints JSON, with the CPU time of all of its threads.
//
//     cc -O2 -o librados_bench bench.c -l:librados.so.2 -lpthread
//     librados_bench CONF KEYRING POOL write|rand DEPTH SIZE SECONDS [OBJECTS]
//
// The declarations are those of librados' C interface; its header need not be installed.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef void *rados_t, *rados_ioctx_t, *rados_completion_t;
typedef void (*rados_callback_t)(rados_completion_t, void *);
int rados_create(rados_t *, const char *);
int rados_conf_read_file(rados_t, const char *);
int rados_conf_set(rados_t, const char *, const char *);
int rados_connect(rados_t);
void rados_shutdown(rados_t);
int rados_ioctx_create(rados_t, const char *, rados_ioctx_t *);
void rados_ioctx_destroy(rados_ioctx_t);
int rados_aio_create_completion2(void *, rados_callback_t, rados_completion_t *);
void rados_aio_release(rados_completion_t);
int rados_aio_get_return_value(rados_completion_t);
int rados_aio_read(rados_ioctx_t, const char *, rados_completion_t, char *, size_t, uint64_t);
int rados_aio_write_full(rados_ioctx_t, const char *, rados_completion_t, const char *, size_t);

static rados_ioctx_t io;
static int writing, objects;
static size_t size;
static double until;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static long done, next_object, failed;
static int open_ops;

// op is one of the operations under way.
struct op { char *data; unsigned seed; };

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double cpu(void) { struct rusage r; getrusage(RUSAGE_SELF, &r);
  return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6; }

static void begin(struct op *o);

static void finished(rados_completion_t c, void *arg) {
  int rc = rados_aio_get_return_value(c);
  rados_aio_release(c);
  int again = now() < until;
  pthread_mutex_lock(&mu);
  done++;
  if (rc < 0 || (!writing && (size_t)rc != size)) { failed++; again = 0; }
  if (!again && --open_ops == 0) pthread_cond_signal(&ended);
  pthread_mutex_unlock(&mu);
  if (again) begin(arg);
}

static void begin(struct op *o) {
  char name[64];
  long i = writing ? __sync_fetch_and_add(&next_object, 1) : rand_r(&o->seed) % objects;
  snprintf(name, sizeof name, writing ? "librados-bench-%ld" : "cephclient-bench-%ld", i);
  rados_completion_t c;
  rados_aio_create_completion2(o, finished, &c);
  int rc = writing ? rados_aio_write_full(io, name, c, o->data, size) : rados_aio_read(io, name, c, o->data, size, 0);
  if (rc < 0) { fprintf(stderr, "submit: %d\n", rc); exit(1); }
}

int main(int argc, char **argv) {
  if (argc < 8) return 2;
  writing = !strcmp(argv[4], "write");
  int depth = atoi(argv[5]); size = strtoul(argv[6], 0, 10);
  double seconds = atof(argv[7]); objects = argc > 8 ? atoi(argv[8]) : 1;
  rados_t cluster;
  int rc;
  if ((rc = rados_create(&cluster, "admin")) || (rc = rados_conf_read_file(cluster, argv[1])) ||
      (rc = rados_conf_set(cluster, "keyring", argv[2])) || (rc = rados_connect(cluster)) ||
      (rc = rados_ioctx_create(cluster, argv[3], &io))) { fprintf(stderr, "connect: %d\n", rc); return 1; }
  struct op *ops = calloc(depth, sizeof *ops);
  for (int i = 0; i < depth; i++) { ops[i].data = calloc(1, size); ops[i].seed = i + 1; }
  double c0 = cpu(), t0 = now();
  until = t0 + seconds; open_ops = depth;
  for (int i = 0; i < depth; i++) begin(&ops[i]);
  pthread_mutex_lock(&mu);
  while (open_ops) pthread_cond_wait(&ended, &mu);
  pthread_mutex_unlock(&mu);
  double took = now() - t0, used = cpu() - c0;
  printf("{\"operations\": %ld, \"failed\": %ld, \"operations_per_second\": %.0f, \"megabytes_per_second\": %.1f, \"cpu_us_per_operation\": %.2f}\n",
         done, failed, done / took, done / took * size / 1e6, used * 1e6 / done);
  rados_ioctx_destroy(io); rados_shutdown(cluster);
  return failed != 0;
}
