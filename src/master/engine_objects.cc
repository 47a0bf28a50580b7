// Ordinary objects.

#include "master/engine.h"

namespace mooncake::master {

Status Engine::Run(const v1::PutStartRequest&, v1::PutStartReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::PutEndRequest&, v1::PutEndReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::PutRevokeRequest&, v1::PutRevokeReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::KeepPutsRequest&, v1::KeepPutsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::LookupObjectsRequest&, v1::LookupObjectsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::RemoveObjectsRequest&, v1::RemoveObjectsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::RemoveAllObjectsRequest&, v1::RemoveAllObjectsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::ListObjectsRequest&, v1::ListObjectsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::ReportUnreadableRequest&, v1::ReportUnreadableReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::SetTenantRequest&, v1::SetTenantReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}
Status Engine::Run(const v1::ListTenantsRequest&, v1::ListTenantsReply*, Batch&) {
  return Unsupported("ordinary objects are being built");
}

}  // namespace mooncake::master
