// Process logging through spdlog: one logger, to standard error, "2026-11-30T05:12:07.123Z I
// master: text".
//
// The first to decide an error logs it, once. Libraries log through Log(); only a program's main
// (or the Python binding) calls SetLogLevel.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/status.h"

namespace mooncake {

spdlog::logger& Log();

// "trace", "debug", "info", "warning", "error" or "off".
Status SetLogLevel(std::string_view level);

}  // namespace mooncake
