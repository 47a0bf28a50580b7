#include "codec/log_event.h"

#include <fmt/format.h>

namespace mooncake::codec {

Status CheckReader(const v1::LogEvent& logged, uint32_t version) {
  if (logged.oldest_reader() <= version) return OkStatus();
  return Unsupported(fmt::format("event of kind {} needs a reader of version {}, this is {}",
                                 logged.kind(), logged.oldest_reader(), version));
}

}  // namespace mooncake::codec
