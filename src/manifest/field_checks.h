// The checks every contract value is made of: texts, integers, lists of integers.
//
// Internal to the folder. Messages are the contract's, then the value that was refused.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

bool IsValidUtf8(std::string_view text);

// Non-empty, valid UTF-8.
Status CheckText(std::string_view name, std::string_view value);
Status CheckAtLeast(std::string_view name, int64_t value, int64_t min);
Status CheckAtLeast(std::string_view name, const std::optional<int64_t>& value, int64_t min);
Status CheckUnsignedAtLeast(std::string_view name, uint64_t value, uint64_t min);
Status CheckAllAtLeast(std::string_view name, std::span<const int64_t> values, int64_t min);
// 64 lowercase hex characters.
bool IsSha256Hex(std::string_view value);

// Sorts `aliases` and checks the group; `tensor_id` is the fragment's.
Status NormalizeAliases(std::string_view tensor_id, std::vector<std::string>& aliases);

// Product of the extents (each >= 0) and `itemsize`; empty when it leaves 64 bits.
std::optional<uint64_t> CheckedBytes(std::span<const int64_t> shape, int64_t itemsize);

// "(4, 2)", for messages.
std::string ToText(std::span<const int64_t> values);
std::string ToText(const ParallelRank& rank);

}  // namespace mooncake::manifest
