#include "rpc/token_file.h"

#include <utility>

#include "base/log.h"

namespace mooncake::rpc {
namespace {

constexpr uint64_t kFileBytesMax = 4 << 20;

}  // namespace

Result<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path) {
  std::unique_ptr<TokenFile> file(new TokenFile(path));
  MC_RETURN_IF_ERROR(file->Reload());
  return file;
}

Status TokenFile::Reload() {
  std::lock_guard lock(mutex_);
  const auto read = [this]() -> Result<TokenTable> {
    // Before it is read: what is refused here is not read again until it changes.
    if (const Result<env::FileStamp> stamp = env::StampOf(path_); stamp.ok()) seen_ = *stamp;
    MC_ASSIGN_OR_RETURN(const env::GuardedFile file,
                        env::ReadGuardedFile(path_, env::Guard::kWriting, kFileBytesMax));
    seen_ = file.stamp;
    return TokenTable::Parse(file.content);
  };
  Result<TokenTable> table = read();
  if (!table.ok()) {
    const Status why = table.status().WithContext("token file " + path_);
    if (table_ != nullptr) {
      Log().error("master: {}; the {} tokens it had before stay", why.ToString(), table_->size());
    }
    return why;
  }
  Log().info("master: token file {}: {} tokens", path_, table->size());
  table_ = std::make_shared<const TokenTable>(*std::move(table));
  return OkStatus();
}

std::shared_ptr<const TokenTable> TokenFile::Current() {
  const Result<env::FileStamp> now = env::StampOf(path_);
  {
    std::lock_guard lock(mutex_);
    if (now.ok() ? *now == seen_ : seen_ == env::FileStamp()) return table_;
    // A file that is gone is reported once.
    if (!now.ok()) {
      Log().error("master: token file {}: {}; the {} tokens it had before stay", path_,
                  now.status().ToString(), table_->size());
      seen_ = {};
      return table_;
    }
  }
  (void)Reload();  // logged
  std::lock_guard lock(mutex_);
  return table_;
}

Result<Caller> TokenFile::Authenticate(std::string_view token) {
  if (token.empty()) {
    return PermissionDenied(
        "no token was shown, and this Master asks for one: give token=, --token-file, "
        "MOONCAKE_TOKEN or MOONCAKE_TOKEN_FILE");
  }
  const std::shared_ptr<const TokenTable> table = Current();
  if (const Caller* caller = table->Find(token)) return *caller;
  return PermissionDenied(
      "the token is none that this Master knows: it was revoked, or is another cluster's");
}

}  // namespace mooncake::rpc
