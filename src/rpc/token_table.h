// The tokens that a Master admits, and who each one's bearer is (docs/formats/token_file.md).
//
// Holds no token, only their SHA-256: whoever reads the file or this table cannot call. Immutable,
// hence any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "rpc/caller.h"

namespace mooncake::rpc {

class TokenTable {
 public:
  // More make every call slower: each is compared.
  static constexpr size_t kTokensMax = 4096;
  // Of a token as it is shown. Longer ones are nobody's.
  static constexpr size_t kTokenBytesMax = 1024;

  // INVALID_ARGUMENT with the line, the field and what is wrong with it.
  static Result<TokenTable> Parse(std::string_view text);

  // nullptr: nobody's. Takes the same time whatever the token and whichever it is.
  const Caller* Find(std::string_view token) const;

  size_t size() const { return entries_.size(); }
  // In the file's order.
  std::vector<Caller> callers() const;

 private:
  struct Entry {
    Sha256Digest sha256{};
    Caller caller;
  };

  static Result<Entry> ParseEntry(std::string_view line);
  Status Add(Entry entry);

  std::vector<Entry> entries_;
};

}  // namespace mooncake::rpc
