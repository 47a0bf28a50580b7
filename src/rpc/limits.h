// Limits that both ends of the Master's channel must agree on.
#pragma once

namespace mooncake::rpc {

// One message, either way: a BeginImport with some hundred thousand payloads fits.
inline constexpr int kMessageBytesMax = 256 << 20;

}  // namespace mooncake::rpc
