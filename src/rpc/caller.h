// Who asks something of the Master, as far as it was proved: the role and the tenant of a token, or
// whoever owns the process that the Master runs in.
//
// A Caller is made by who authenticates (the gRPC server from its token file, an embedded store for
// itself); what it may do is master/caller_check.h's to say. Plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncake::rpc {

// In the token file by name (docs/formats/token_file.md).
enum class Role : uint8_t {
  kClient = 1,    // publishes, reads and removes what is one tenant's
  kNode = 2,      // a store node: registers and reports
  kOperator = 3,  // everything, for every tenant
};
inline constexpr uint8_t kRoleMax = 3;

constexpr std::string_view Name(Role role) {
  constexpr std::string_view kNames[] = {"", "client", "node", "operator"};
  return kNames[static_cast<uint8_t>(role)];
}

struct Caller {
  Role role = Role::kOperator;
  std::optional<std::string> tenant_id;  // the only one it may name; none: any
  std::string name;                      // of its token, for messages; empty: it showed none

  // Of one tenant or of every tenant: what requests and replies are held against.
  bool MayName(std::string_view tenant) const { return !tenant_id || *tenant_id == tenant; }

  // Who owns the process, and whoever calls a Master that was told to ask for no tokens.
  static const Caller& Operator() {
    static const Caller kOperator;
    return kOperator;
  }

  friend bool operator==(const Caller&, const Caller&) = default;
};

// "client token trainer-7 of tenant blue", for messages and the log.
inline std::string Describe(const Caller& caller) {
  if (caller.name.empty()) return "the process's own " + std::string(Name(caller.role));
  std::string text = std::string(Name(caller.role)) + " token " + caller.name;
  if (caller.tenant_id) text += " of tenant " + *caller.tenant_id;
  return text;
}

}  // namespace mooncake::rpc
