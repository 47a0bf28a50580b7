#include "model/revision.h"

namespace mooncake::model {

Sha256Digest DigestsRoot(const std::vector<MetadataObject>& digests) {
  Sha256 hash;
  for (const MetadataObject& object : digests) {
    hash.Update(object.name + " " + std::to_string(object.bytes) + " " + ToHex(object.sha256) +
                "\n");
  }
  return hash.Finish();
}

}  // namespace mooncake::model
