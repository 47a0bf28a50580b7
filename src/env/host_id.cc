#include "env/host_id.h"

#include "env/file.h"

namespace mooncake::env {
namespace {

std::string FirstLine(const std::string& path) {
  Result<std::string> text = ReadFile(path, 4096);
  if (!text.ok()) return {};
  return text->substr(0, text->find('\n'));
}

}  // namespace

std::string HostId() {
  const std::string machine = FirstLine("/etc/machine-id");
  const std::string boot = FirstLine("/proc/sys/kernel/random/boot_id");
  if (machine.empty() || boot.empty()) return machine + boot;
  return machine + "-" + boot;
}

}  // namespace mooncake::env
