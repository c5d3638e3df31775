/* NCCL's functions, as its header declares them. */
#ifndef TEST_NCCL_H
#define TEST_NCCL_H

#include <stddef.h>

typedef struct { char bytes[128]; } ncclUniqueId;
typedef void *ncclComm_t;
enum { ncclInt8 = 0, ncclSum = 0 };

int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *to, int size, ncclUniqueId id, int rank);
int ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t *to, void *config);
int ncclCommDestroy(ncclComm_t communicator);
int ncclCommAbort(ncclComm_t communicator);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, ncclComm_t communicator, void *stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, ncclComm_t communicator, void *stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, ncclComm_t communicator, void *stream);
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, ncclComm_t communicator, void *stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, ncclComm_t communicator, void *stream);
int ncclSend(const void *from, size_t count, int type, int peer, ncclComm_t communicator, void *stream);
int ncclRecv(void *to, size_t count, int type, int peer, ncclComm_t communicator, void *stream);

#endif
