// The golden files of persisted formats: tests/golden/formats/v<n>/ (docs/formats/golden.md).
//
// Read by tests of the formats' owners. With MOONCAKE_WRITE_GOLDEN=<folder> the same tests write
// what this build would keep there, and fail rather than replace a file.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "env/file.h"

namespace mooncake::env {

inline constexpr char kGoldenAdvice[] =
    "A persisted format has changed. Files like this one are on disks out there, and every later "
    "version must read them: make this build read them again. If it is meant to write something "
    "else from now on, add what it writes as tests/golden/formats/v<n+1> beside what is there "
    "(docs/formats/golden.md says how), and never replace a golden file.";

// Version -> its folder. `source_folder` is MOONCAKE_SOURCE_DIR.
inline std::map<int, std::string> GoldenVersions(const std::string& source_folder) {
  std::map<int, std::string> versions;
  const std::string root = source_folder + "/tests/golden/formats";
  const auto names = ListFolder(root);
  MC_CHECK(names.ok());
  for (const std::string& name : *names) {
    MC_CHECK(name.size() > 1 && name[0] == 'v');
    versions[std::stoi(name.substr(1))] = root + "/" + name;
  }
  MC_CHECK(!versions.empty());
  return versions;
}

// Where to write golden files; empty: not to.
inline std::string GoldenTarget() {
  const char* folder = std::getenv("MOONCAKE_WRITE_GOLDEN");
  return folder == nullptr ? "" : folder;
}

inline void WriteGolden(const std::string& path, const std::string& bytes) {
  ASSERT_FALSE(PathExists(path).value()) << path << " is there already. " << kGoldenAdvice;
  ASSERT_TRUE(MakeFolders(FolderOf(path)).ok());
  const Status written = WriteFileDurably(path, bytes);
  ASSERT_TRUE(written.ok()) << written.ToString();
}

inline std::string ReadGolden(const std::string& path) {
  const auto bytes = ReadFile(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString() << ". " << kGoldenAdvice;
  return bytes.ok() ? *bytes : "";
}

}  // namespace mooncake::env
