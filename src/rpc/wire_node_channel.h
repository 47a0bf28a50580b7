// The calls of a NodeChannel as messages of proto/mooncake/v1/node.proto; how a message gets there
// is the subclass's business (a Unix socket; the simulation's network).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "env/unique_fd.h"
#include "mooncake/v1/node.pb.h"
#include "rpc/node_channel.h"

namespace mooncake::rpc {

class WireNodeChannel : public NodeChannel {
 public:
  Result<env::UniqueFd> OpenArena(const v1::Grant& grant, const CallBounds& bounds) final;
  // Nodes behind a wire have arenas of memory.
  Status ReserveArena(const v1::Grant&, const CallBounds&) final { return OkStatus(); }
  Status WriteMetadata(const v1::Grant& grant, std::string_view name, std::string_view content,
                       const CallBounds& bounds) final;
  Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name,
                                   const CallBounds& bounds) final;
  Status SealImport(const v1::Grant& grant, const CallBounds& bounds) final;
  Result<env::UniqueFd> OpenSlab(const v1::Grant& grant, const CallBounds& bounds) final;
  Result<std::vector<Status>> WriteExtents(v1::WriteExtents request,
                                           const CallBounds& bounds) final;
  Result<v1::NodeReply> ReadExtents(v1::ReadExtents request, const CallBounds& bounds) final;

 protected:
  struct Answer {
    v1::NodeReply reply;
    std::vector<env::UniqueFd> fds;
  };

 private:
  // The one descriptor of an answer, of memory that `grant` says the size of. `what` is for
  // messages.
  Result<env::UniqueFd> TakeDescriptor(Answer answer, const v1::Grant& grant,
                                       std::string_view what) const;
  // The node's refusal is the Status. May change the request's id.
  virtual Result<Answer> Call(v1::NodeRequest* request, const CallBounds& bounds) = 0;
  // Which node, for messages.
  virtual std::string Describe() const = 0;
};

}  // namespace mooncake::rpc
