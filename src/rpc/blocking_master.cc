#include <semaphore>

#include "rpc/async_master.h"

namespace mooncake::rpc {

#define MOONCAKE_DEFINE(Name)                                                    \
  v1::Name##Reply BlockingMaster::Name(const v1::Name##Request& request) {       \
    v1::Name##Reply reply;                                                       \
    std::binary_semaphore answered(0);                                           \
    master_.Name(caller_, request, &reply, [&answered] { answered.release(); }); \
    answered.acquire();                                                          \
    return reply;                                                                \
  }
MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

}  // namespace mooncake::rpc
