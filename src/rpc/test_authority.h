// Certificates for tests, made with the openssl command.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "env/file.h"
#include "env/test_folder.h"

namespace mooncake::rpc {

class TestAuthority {
 public:
  struct Identity {
    std::string cert;  // paths
    std::string key;
    std::string cert_pem;
    std::string key_pem;
  };

  explicit TestAuthority(const std::string& name = "Test authority") {
    Run(fmt::format("req -x509 {} -nodes -keyout {} -out {} -days 30 -subj '/CN={}'", kNewKey,
                    folder_ / "ca.key", path(), name));
  }

  std::string path() const { return folder_ / "ca.pem"; }
  std::string pem() const { return env::ReadFile(path()).value(); }

  // For hosts as openssl writes them: "DNS:localhost,IP:127.0.0.1". Days of -1: expired.
  Identity Issue(const std::string& hosts, int days = 30) {
    const std::string base = folder_ / ("cert" + std::to_string(++issued_));
    Identity made{base + ".pem", base + ".key", {}, {}};
    MC_CHECK(env::WriteFileDurably(base + ".ext", "subjectAltName=" + hosts + "\n").ok());
    Run(fmt::format("req {} -nodes -keyout {} -out {}.csr -subj /CN=test", kNewKey, made.key,
                    base));
    Run(
        fmt::format("x509 -req -in {0}.csr -CA {1} -CAkey {2} -CAcreateserial -out {0}.pem "
                    "-days {3} -extfile {0}.ext",
                    base, path(), folder_ / "ca.key", days));
    made.cert_pem = env::ReadFile(made.cert).value();
    made.key_pem = env::ReadFile(made.key).value();
    return made;
  }

 private:
  static constexpr const char* kNewKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1";

  static void Run(const std::string& arguments) {
    const std::string command = "openssl " + arguments + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  env::TestFolder folder_;
  int issued_ = 0;
};

}  // namespace mooncake::rpc
