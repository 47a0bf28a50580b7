#include "python/errors.h"

#include <stdexcept>

namespace mooncake::python {

void Refuse(const std::string& message) { throw nanobind::value_error(message.c_str()); }

void Throw(const Status& status) {
  if (status.code() == Code::kInvalidArgument) Refuse(status.message());
  throw std::runtime_error(status.ToString());
}

}  // namespace mooncake::python
