#include "node/node_folder.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "env/file.h"
#include "model/identity.h"

namespace mooncake::node {
namespace {

constexpr size_t kIdLengthMax = 128;

// Of the sub-folders that are named by an import's id.
Status AddImports(const std::string& folder, std::set<uint64_t>* imports) {
  const Result<std::vector<std::string>> names = env::ListFolder(folder);
  if (names.status().code() == Code::kNotFound) return OkStatus();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error == std::errc() && end == name.data() + name.size()) imports->insert(id);
  }
  return OkStatus();
}

// What is wrong with the id; empty: nothing.
std::string FaultOf(std::string_view id) {
  if (id.empty() || id.size() > kIdLengthMax) {
    return "expected an id of 1 to " + std::to_string(kIdLengthMax) + " bytes, got " +
           std::to_string(id.size());
  }
  for (size_t at = 0; at < id.size(); ++at) {
    const auto byte = static_cast<unsigned char>(id[at]);
    if (byte >= ' ' && byte != 0x7f) continue;
    return "expected an id without control characters, got byte " + std::to_string(byte) + " at " +
           std::to_string(at);
  }
  return model::IsUtf8(id) ? "" : "expected an id of UTF-8, got bytes " + HexOf(id);
}

}  // namespace

Result<NodeFolderView> PeekNodeFolder(const std::string& folder) {
  NodeFolderView view;
  MC_ASSIGN_OR_RETURN(view.cluster_id, ReadId(folder, kClusterIdFile));
  MC_RETURN_IF_ERROR(AddImports(folder + "/" + kMetadataFolder, &view.import_ids));
  MC_RETURN_IF_ERROR(AddImports(folder + "/" + kArenasFolder, &view.import_ids));
  return view;
}

Result<std::optional<std::string>> ReadId(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  Result<std::string> text = env::ReadFile(path, 1 << 20);
  if (text.status().code() == Code::kNotFound) return std::optional<std::string>();
  if (!text.ok()) return text.status();
  std::string_view id = *text;
  if (id.ends_with('\n')) id.remove_suffix(1);
  if (const std::string fault = FaultOf(id); !fault.empty()) return Corrupt(path + ": " + fault);
  return std::optional<std::string>(id);
}

Status WriteId(const std::string& folder, const std::string& file, const std::string& id) {
  if (const std::string fault = FaultOf(id); !fault.empty()) {
    return InvalidArgument(file + ": " + fault);
  }
  return env::WriteFileDurably(folder + "/" + file, id + "\n");
}

}  // namespace mooncake::node
