#include "master/version.h"

namespace mooncake::master {

std::string_view Version() { return MOONCAKE_VERSION; }

}  // namespace mooncake::master
