#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

namespace mooncake {

spdlog::logger& Log() {
  // Never destroyed: threads may log while the process exits.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("mooncake", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %L %v", spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

Status SetLogLevel(std::string_view level) {
  for (const char* known : {"trace", "debug", "info", "warning", "error", "off"}) {
    if (level == known) {
      Log().set_level(spdlog::level::from_str(std::string(level)));
      return OkStatus();
    }
  }
  return InvalidArgument("log level must be trace, debug, info, warning, error or off, got \"" +
                         std::string(level) + "\"");
}

}  // namespace mooncake
