// A fresh folder for one test, removed with it; and a count of open descriptors.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "env/file.h"

namespace mooncake::env {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = testing::TempDir() + "mooncake-XXXXXX";
    MC_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TestFolder() { EXPECT_TRUE(RemoveFolderTree(path_).ok()); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline size_t OpenFdCount() {
  const auto names = ListFolder("/proc/self/fd");
  MC_CHECK(names.ok());
  // The listing's own descriptor is among them.
  return names->size() - 1;
}

}  // namespace mooncake::env
