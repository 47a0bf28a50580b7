// A Master's token file: who shows which token, as the file says now.
//
// Owns the newest good content. The file is looked at (one stat) with every token that is shown,
// and read again when it is another one, so that a revoked token is refused from the next call on;
// put the new content in place with a rename, as `mooncake tokens` does. A content that cannot be
// used (a mistake, a mode that lets others write it, no file at all) changes nothing: the last good
// one stays, and the log says so. Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "env/guarded_file.h"
#include "rpc/caller.h"
#include "rpc/token_table.h"

namespace mooncake::rpc {

class TokenFile {
 public:
  // INVALID_ARGUMENT, NOT_FOUND with the path and the line.
  static Result<std::unique_ptr<TokenFile>> Open(const std::string& path);

  // Who shows `token`. PERMISSION_DENIED: nobody known.
  Result<Caller> Authenticate(std::string_view token);

  // Reads the file now, changed or not (SIGHUP). The Status that Open would give.
  Status Reload();

  const std::string& path() const { return path_; }

 private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}

  std::shared_ptr<const TokenTable> Current();

  const std::string path_;
  std::mutex mutex_;
  env::FileStamp seen_;  // of what was read last, good or not
  std::shared_ptr<const TokenTable> table_;
};

}  // namespace mooncake::rpc
