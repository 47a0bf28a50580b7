// The version of this build, as `--version` and GetCluster tell it.
#pragma once

#include <string_view>

namespace mooncake::master {

std::string_view Version();

}  // namespace mooncake::master
