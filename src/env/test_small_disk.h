// Runs a part of a test with a disk of its own that is small enough to fill: a tmpfs, mounted where
// nobody else sees it. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "env/file.h"
#include "env/test_folder.h"

namespace mooncake::env {

enum class SmallDisk { kPassed, kFailed, kCannotMount };

// `body` runs in a forked child (call this before the test makes threads) and gets the disk's
// folder; its failures are the caller's to report by the outcome.
inline SmallDisk OnSmallDisk(uint64_t bytes, const std::function<void(const std::string&)>& body) {
  constexpr int kCannotMount = 77;
  const TestFolder folder;
  const std::string uid = std::to_string(::getuid());
  const std::string gid = std::to_string(::getgid());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto write = [](const char* path, const std::string& text) {
      std::ofstream(path) << text;
    };
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(kCannotMount);
    write("/proc/self/setgroups", "deny");
    write("/proc/self/uid_map", "0 " + uid + " 1");
    write("/proc/self/gid_map", "0 " + gid + " 1");
    const std::string options = "size=" + std::to_string(bytes);
    if (::mount("none", folder.path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
      ::_exit(kCannotMount);
    }
    body(folder.path());
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotMount) return SmallDisk::kCannotMount;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? SmallDisk::kPassed : SmallDisk::kFailed;
}

// Writes until nothing more fits; the file that did it. Removing it makes room again.
inline std::string FillDisk(const std::string& folder) {
  std::string path = folder + "/filler";
  std::ofstream file(path, std::ios::binary);
  const std::string page(4096, 'f');
  while (file.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
  }
  return path;
}

}  // namespace mooncake::env

#define MC_ON_SMALL_DISK(bytes, ...)                                                \
  switch (::mooncake::env::OnSmallDisk(bytes, __VA_ARGS__)) {                       \
    case ::mooncake::env::SmallDisk::kCannotMount:                                  \
      GTEST_SKIP() << "needs a tmpfs of its own: no user namespaces, or no mounts"; \
    case ::mooncake::env::SmallDisk::kFailed:                                       \
      FAIL() << "see above";                                                        \
    case ::mooncake::env::SmallDisk::kPassed:                                       \
      break;                                                                        \
  }
