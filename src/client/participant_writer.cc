#include "client/participant_writer.h"

#include <algorithm>
#include <set>

#include "client/fragment_source.h"
#include "client/steps.h"
#include "manifest/lookup.h"

namespace mooncake::client {
namespace {

transfer::StridedCopy CopyOf(const transfer::StridedSource& source, std::byte* target) {
  transfer::StridedCopy copy;
  copy.source = source.data;
  copy.target = target;
  copy.inner_bytes = source.inner_bytes;
  copy.loops = source.loops;
  copy.counts = source.counts;
  copy.source_strides = source.strides;
  auto stride = static_cast<int64_t>(source.inner_bytes);
  for (int loop = source.loops; loop-- > 0;) {
    copy.target_strides[loop] = stride;
    stride *= static_cast<int64_t>(source.counts[loop]);
  }
  return copy;
}

// Of a small fragment, which lies in one piece.
Sha256Digest FingerprintOfBytes(std::span<const std::byte> fragment) {
  std::vector<BlockDigest> blocks;
  for (size_t begin = 0; begin < fragment.size(); begin += kDigestBlockBytes) {
    const size_t bytes = std::min<size_t>(kDigestBlockBytes, fragment.size() - begin);
    blocks.push_back(BlockDigestOf(fragment.data() + begin, bytes));
  }
  return FingerprintOf(blocks);
}

}  // namespace

ParticipantWriter::ParticipantWriter(const reshard::UploadPlan& plan, uint32_t participant,
                                     WriteArenas* arenas)
    : plan_(plan), participant_(participant), arenas_(arenas) {
  for (const uint32_t planned : plan.participants[participant].objects) {
    auto object = std::make_unique<Object>();
    object->planned = planned;
    const reshard::PayloadObject& payload = plan.objects[planned];
    object->packed = payload.fragments.size() > 1;
    const std::vector<uint32_t>& compared = plan.participants[participant].compared;
    for (const reshard::UploadedFragment& uploaded : payload.fragments) {
      Slot& slot = AddSlot(uploaded.fragment);
      slot.object = object.get();
      slot.offset = uploaded.object_offset;
      slot.compared =
          object->packed && std::binary_search(compared.begin(), compared.end(), uploaded.fragment);
    }
    objects_.push_back(std::move(object));
  }
  for (const uint32_t replica : plan.participants[participant].replicas) {
    AddSlot(replica).compared = true;
  }
}

ParticipantWriter::Slot& ParticipantWriter::AddSlot(uint32_t fragment) {
  auto slot = std::make_unique<Slot>();
  slot->fragment = &plan_.placement->fragments[fragment];
  const std::string_view id = slot->fragment->placement_fragment_id;
  return *slots_.emplace(id, std::move(slot)).first->second;
}

std::vector<std::string> ParticipantWriter::Wanted() const {
  std::vector<std::string> ids;
  for (const auto& [id, slot] : slots_) ids.emplace_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Status ParticipantWriter::Put(std::string_view placement_fragment_id, const FragmentSource& source,
                              Session& session) {
  const manifest::PlacementPart* part = manifest::FindPart(*plan_.placement, participant_id());
  const manifest::PlacementFragment* fragment =
      part == nullptr ? nullptr : manifest::FindFragment(part->fragments, placement_fragment_id);
  if (fragment == nullptr) {
    return InvalidArgument("participant " + participant_id() + " has no fragment " +
                           std::string(placement_fragment_id));
  }
  MC_ASSIGN_OR_RETURN(const transfer::StridedSource strided, MakeStridedSource(*fragment, source));
  const auto found = slots_.find(placement_fragment_id);
  if (found == slots_.end()) return OkStatus();  // a replica that is not compared
  Slot& slot = *found->second;
  uint8_t expected = kMissing;
  if (!slot.state.compare_exchange_strong(expected, kBusy)) {
    return Conflict("fragment " + std::string(placement_fragment_id) + " of " +
                    fragment->tensor_id + " was put before");
  }
  Status status = Write(slot, strided, session);
  slot.state = status.ok() ? kDone : kMissing;
  if (!status.ok()) return status.WithContext("fragment of " + fragment->tensor_id);
  const bool uploaded = hands_in() && slot.object != nullptr;
  (uploaded ? bytes_uploaded_ : bytes_compared_)
      .fetch_add(fragment->nbytes, std::memory_order_relaxed);
  return session.Step(import_step::kFragmentPut);
}

Status ParticipantWriter::Write(Slot& slot, const transfer::StridedSource& source,
                                Session& session) {
  if (slot.object == nullptr) return Fingerprint(slot, source, session);
  if (!slot.object->packed) return WriteWhole(*slot.object, source, session);
  return WritePacked(slot, source, session);
}

Status ParticipantWriter::Fingerprint(Slot& slot, const transfer::StridedSource& source,
                                      Session& session) {
  const transfer::PayloadWrite digest_only{.target = nullptr, .sources = {source}};
  MC_ASSIGN_OR_RETURN(const auto digests, session.engine.WritePayloads({&digest_only, 1}));
  slot.fingerprint = FingerprintOf(digests[0]);
  return OkStatus();
}

Result<std::byte*> ParticipantWriter::Target(const Object& object, Session& session) {
  if (arenas_ == nullptr) return static_cast<std::byte*>(nullptr);
  return arenas_->Open(object.planned, [&] { return session.Step(import_step::kArenaOpened); });
}

Status ParticipantWriter::WriteWhole(Object& object, const transfer::StridedSource& source,
                                     Session& session) {
  MC_ASSIGN_OR_RETURN(std::byte* const target, Target(object, session));
  const transfer::PayloadWrite write{.target = target, .sources = {source}};
  MC_ASSIGN_OR_RETURN(auto digests, session.engine.WritePayloads({&write, 1}));
  object.digests = std::move(digests[0]);
  if (arenas_ != nullptr) arenas_->Close(object.planned);
  return OkStatus();
}

Result<PackWriter*> ParticipantWriter::OpenPack(Object& object, Session& session) {
  std::lock_guard lock(object.opening);
  if (object.pack == nullptr) {
    MC_ASSIGN_OR_RETURN(std::byte* const target, Target(object, session));
    object.pack = std::make_unique<PackWriter>(target, plan_.objects[object.planned].nbytes);
  }
  return object.pack.get();
}

Status ParticipantWriter::WritePacked(Slot& slot, const transfer::StridedSource& source,
                                      Session& session) {
  Object& object = *slot.object;
  const uint64_t nbytes = slot.fragment->nbytes;
  MC_ASSIGN_OR_RETURN(PackWriter* const pack, OpenPack(object, session));
  std::vector<std::byte> gathered;  // less than the pack threshold
  std::byte* target = pack->target() == nullptr ? nullptr : pack->target() + slot.offset;
  if (target == nullptr && source.loops == 0) {
    if (slot.compared) slot.fingerprint = FingerprintOfBytes({source.data, nbytes});
    pack->Add(slot.offset, {source.data, nbytes});
    return OkStatus();
  }
  if (target == nullptr) {
    gathered.resize(nbytes);
    target = gathered.data();
  }
  const transfer::StridedCopy copy = CopyOf(source, target);
  MC_RETURN_IF_ERROR(session.engine.Copy({&copy, 1}));
  if (slot.compared) slot.fingerprint = FingerprintOfBytes({target, nbytes});
  pack->Add(slot.offset, {target, nbytes});
  // Whoever brings the last bytes closes it; complete() is true for good then.
  std::lock_guard lock(object.opening);
  if (arenas_ != nullptr && pack->target() != nullptr && pack->complete() && !object.closed) {
    object.closed = true;
    arenas_->Close(object.planned);
  }
  return OkStatus();
}

std::vector<std::string> ParticipantWriter::Missing() const {
  std::set<std::string> tensors;
  for (const auto& [id, slot] : slots_) {
    if (slot->state != kDone) tensors.insert(slot->fragment->tensor_id);
  }
  return {tensors.begin(), tensors.end()};
}

std::string ParticipantWriter::Digests() const {
  std::vector<PayloadDigests> payloads;
  for (const auto& object : objects_) {
    const reshard::PayloadObject& planned = plan_.objects[object->planned];
    payloads.push_back(
        {planned.name, planned.nbytes, object->packed ? object->pack->digests() : object->digests});
  }
  std::vector<FragmentFingerprint> fingerprints;
  for (const auto& [id, slot] : slots_) {
    if (!slot->compared) continue;
    fingerprints.push_back({std::string(id), slot->fragment->nbytes, slot->fingerprint});
  }
  return EncodeDigests(std::move(payloads), std::move(fingerprints));
}

}  // namespace mooncake::client
