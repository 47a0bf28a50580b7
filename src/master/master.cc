#include "master/master.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "env/sync.h"
#include "master/caller_check.h"
#include "master/recovery.h"
#include "master/request_digest.h"
#include "rpc/status_proto.h"

namespace mooncake::master {
namespace {

template <class Request>
concept Command = requires(const Request& request) {
  request.command();
};

}  // namespace

class Master::Call {
 public:
  virtual ~Call() = default;
  // Decides the request and fills the reply.
  virtual void Run(Engine& engine, Batch& batch) = 0;
  // The reply stands and goes out.
  virtual void Answer() = 0;
  // The reply is of no use: this goes out in its place.
  virtual void Fail(const Status& status) = 0;
  // Nothing was looked at, for this reason.
  virtual void Refuse(const Status& why) = 0;
  // How the caller is told that its batch failed.
  virtual Code DurabilityCode() const = 0;
};

template <class Request, class Reply>
class Master::CallOf final : public Call {
 public:
  CallOf(const char* method, const rpc::Caller& caller, const Request& request, Reply* reply,
         Done done)
      : caller_(caller), request_(request), reply_(reply), done_(std::move(done)) {
    if constexpr (Command<Request>) {
      // Here, on the caller's thread, since it reads the whole request.
      bad_command_ = ValidateCommandId(request.command());
      if (bad_command_.ok()) digest_ = RequestDigest(method, request, request.command());
    }
  }

  void Run(Engine& engine, Batch& batch) override {
    if constexpr (Command<Request>) {
      RunCommand(engine, batch);
    } else {
      Put(RunFor(caller_, engine, request_, reply_, batch));
    }
  }

  void Answer() override { done_(); }
  void Fail(const Status& status) override {
    Put(status);
    done_();
  }
  // A command may have been executed before: while the log cannot be read nobody knows, and only a
  // code that says so may be answered.
  void Refuse(const Status& why) override {
    const bool unclear = Command<Request> && why.code() != Code::kUnavailable;
    Fail(unclear ? Status(DurabilityCode(), why.message()) : why);
  }
  Code DurabilityCode() const override {
    return Command<Request> ? Code::kDurabilityFailed : Code::kUnavailable;
  }

 private:
  void RunCommand(Engine& engine, Batch& batch) {
    if (!bad_command_.ok()) return Put(bad_command_);
    const v1::CommandId& command = request_.command();
    std::string client_id = CommandClientId(caller_, command.client_id());
    const Result<const std::string*> known =
        engine.state().commands.Find(client_id, command.sequence(), command.acked_below(), digest_);
    if (!known.ok()) return Put(known.status());
    if (*known != nullptr) {
      MC_PROBE("master.first_answer_again");
      if (!reply_->ParseFromString(**known)) Put(Internal("the recorded reply cannot be read"));
      return;
    }
    const Status status = RunFor(caller_, engine, request_, reply_, batch);
    Put(status);
    // Not a decision: the same id may be asked again.
    if (status.code() == Code::kUnavailable) return;
    // Who is refused again and again for want of space must not use up what the log has left. A
    // late copy of the request may be decided anew: nobody keeps the import that it begins.
    if (status.code() == Code::kExhausted && !engine.log_space().ok()) return;
    batch.Emit(CommandOutcome{std::move(client_id), command.sequence(), command.acked_below(),
                              digest_, reply_->SerializeAsString()});
  }

  void Put(const Status& status) {
    if (!status.ok()) reply_->Clear();
    rpc::SetStatus(reply_->mutable_status(), status);
  }

  const rpc::Caller caller_;
  const Request& request_;
  Reply* const reply_;
  const Done done_;
  Status bad_command_;
  Sha256Digest digest_{};
};

Result<std::unique_ptr<Master>> Master::Open(const MasterOptions& options, MasterSeams seams) {
  MC_RETURN_IF_ERROR(Validate(options));
  MC_ASSIGN_OR_RETURN(ReplicatedState state, ReplayAndTakeOver(seams.log, seams.snapshots.snapshots,
                                                               seams.clock.WallMs()));
  MC_ASSIGN_OR_RETURN(std::string cluster_id, ReadOrMakeClusterId(seams.log, seams.random));
  Log().info("master: serves cluster {} from log sequence {}, term {}: {} revisions, {} objects",
             cluster_id, state.sequence, state.term, state.weights.revisions().size(),
             state.objects.payload_count());
  std::unique_ptr<Master> master(new Master(options, seams, std::move(cluster_id)));
  master->Adopt(std::move(state));
  if (options.clients_end_with_master) MC_RETURN_IF_ERROR(master->EndClients());
  return master;
}

Master::Master(const MasterOptions& options, MasterSeams seams, std::string cluster_id)
    : options_(options),
      seams_(seams),
      cluster_id_(std::move(cluster_id)),
      engine_(options, cluster_id_, seams.clock),
      clock_(seams.clock, options.pause_tolerance_ms),
      snapshotter_(seams_.snapshots, {options.snapshot_every_records, options.snapshot_every_bytes},
                   cluster_id_) {}

Master::~Master() { Stop(); }

void Master::Start() {
  MC_CHECK(!thread_.joinable());
  // While the state is still this thread's.
  snapshotter_.Start(engine_.state().sequence);
  thread_ = env::Thread([this] { Loop(); });
}

void Master::Stop() {
  Calls left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(queue_);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (const Status flushed = FlushWaiting(); !flushed.ok()) {
    Log().warn("master: what was relaxed is lost at the end: {}", flushed.ToString());
    unwritten_.clear();
  }
  snapshotter_.Stop();
  std::move(waiting_.begin(), waiting_.end(), std::back_inserter(left));
  waiting_.clear();
  for (const auto& call : left) call->Fail(Unavailable("the Master is stopping"));
}

void Master::Loop() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!more_due_) {
        wake_.wait_for(lock, std::chrono::milliseconds(options_.upkeep_interval_ms),
                       [this] { return stopping_ || !queue_.empty(); });
      }
      if (stopping_) return;
    }
    Step();
  }
}

template <class Request, class Reply>
void Master::Submit(const char* method, const rpc::Caller& caller, const Request& request,
                    Reply* reply, Done done) {
  auto call =
      std::make_unique<CallOf<Request, Reply>>(method, caller, request, reply, std::move(done));
  Status refusal = CheckRole(caller, method);
  if (refusal.ok()) {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      refusal = Unavailable("the Master is stopping");
    } else if (queue_.size() >= options_.queue_max) {
      refusal = Unavailable(fmt::format("{} requests are waiting already", queue_.size()));
    } else {
      queue_.push_back(std::move(call));
    }
  }
  if (!refusal.ok()) return call->Fail(refusal);
  wake_.notify_one();
}

bool Master::Step() {
  Calls calls = TakeQueued();
  if (!refusing_.ok()) {
    if (seams_.clock.MonotonicMs() >= rebuild_at_ms_) Rebuild();
    if (!refusing_.ok()) {
      for (const auto& call : calls) call->Refuse(refusing_);
      more_due_ = false;
      return !calls.empty();
    }
  }
  const bool had_calls = !calls.empty();
  engine_.SetLogSpace(seams_.log.CheckSpace());
  Batch batch(engine_.state(), engine_.deadlines(), clock_.NowMs());
  std::vector<std::unique_ptr<Call>> ran = RunCalls(calls, batch);
  waiting_ = std::move(calls);
  more_due_ = engine_.Upkeep(batch) || !waiting_.empty();
  const Status flushed = batch.failure().ok() ? Flush(batch) : batch.failure();
  if (flushed.ok()) {
    for (const auto& call : ran) call->Answer();
    more_due_ = DropSuperfluousLog() || more_due_;
    return had_calls || !batch.empty() || more_due_;
  }
  unwritten_.clear();
  unwritten_bytes_ = 0;
  MC_PROBE("master.append_failed");
  Log().error("master: a batch of {} bytes at log sequence {} failed: {}", batch.bytes(),
              engine_.state().sequence, flushed.ToString());
  // First the truth, so that whoever is told can ask for it at once.
  Rebuild();
  for (const auto& call : ran) {
    // A fault of the program was not written, the outcome of a failed append is unclear.
    call->Fail(
        !batch.failure().ok()
            ? flushed
            : Status(call->DurabilityCode(), "the log could not be written: " + flushed.message()));
  }
  return true;
}

Master::Calls Master::TakeQueued() {
  Calls calls = std::exchange(waiting_, {});
  std::lock_guard lock(mutex_);
  std::move(queue_.begin(), queue_.end(), std::back_inserter(calls));
  queue_.clear();
  return calls;
}

std::vector<std::unique_ptr<Master::Call>> Master::RunCalls(Calls& calls, Batch& batch) {
  std::vector<std::unique_ptr<Call>> ran;
  size_t count = 0;
  while (!calls.empty() && count < options_.batch_commands_max &&
         batch.bytes() < options_.batch_bytes_max && batch.failure().ok()) {
    std::unique_ptr<Call> call = std::move(calls.front());
    calls.pop_front();
    ++count;
    call->Run(engine_, batch);
    // What it saw is durable already, or need not be.
    if (!batch.must_be_durable()) {
      call->Answer();
    } else {
      ran.push_back(std::move(call));
    }
  }
  return ran;
}

Status Master::Flush(const Batch& batch) {
  if (!batch.empty()) {
    ReplicatedState& state = engine_.state();
    WaitingRecord& record = unwritten_.emplace_back();
    record.payload = batch.Serialize();
    record.view = {state.sequence + 1, state.term, batch.now_ms(), record.payload};
    unwritten_bytes_ += record.payload.size();
    state.sequence = record.view.sequence;
    state.logged_ms = record.view.time_ms;
    if (replayed_ != nullptr) VerifyReplay(record.view);
  }
  if (!batch.must_be_durable() && !WaitingIsDue(batch.now_ms())) return OkStatus();
  return FlushWaiting();
}

bool Master::WaitingIsDue(int64_t now_ms) const {
  return !unwritten_.empty() &&
         (unwritten_bytes_ >= options_.relaxed_bytes_max ||
          now_ms - unwritten_.front().view.time_ms >= options_.relaxed_flush_ms);
}

Status Master::FlushWaiting() {
  if (unwritten_.empty()) return OkStatus();
  std::vector<oplog::LogRecordView> records;
  records.reserve(unwritten_.size());
  for (const WaitingRecord& record : unwritten_) records.push_back(record.view);
  MC_RETURN_IF_ERROR(seams_.log.AppendAll(records));
  snapshotter_.NoteAppended(records.size(), unwritten_bytes_);
  unwritten_.clear();
  unwritten_bytes_ = 0;
  return OkStatus();
}

Result<uint64_t> Master::TakeSnapshot() {
  if (seams_.snapshots.snapshots == nullptr) return Unsupported("this Master takes no snapshots");
  return snapshotter_.Take();
}

bool Master::DropSuperfluousLog() {
  const uint64_t before = snapshotter_.drop_before();
  if (before <= dropped_before_) return false;
  const Result<bool> more = seams_.log.DropBefore(before, options_.log_drop_records_max);
  // Nothing is lost but space; the next snapshot names it again.
  if (more.ok()) MC_PROBE("master.log_shortened");
  if (!more.ok()) Log().warn("master: the log is not shortened: {}", more.status().ToString());
  if (more.ok() && *more) return true;
  dropped_before_ = before;
  return false;
}

Status Master::EndClients() {
  for (bool more = true; more;) {
    Batch batch(engine_.state(), engine_.deadlines(), clock_.NowMs());
    more = engine_.EndClients(batch);
    MC_RETURN_IF_ERROR(batch.failure());
    MC_RETURN_IF_ERROR(Flush(batch).WithContext("ending the clients of an earlier process"));
  }
  return OkStatus();
}

void Master::VerifyReplay(const oplog::LogRecordView& record) {
  const Status applied = replayed_->ApplyRecord(record);
  if (!applied.ok()) Log().critical("master: replay differs from live: {}", applied.ToString());
  MC_CHECK(applied.ok());
  if (record.sequence % options_.verify_replay_every != 0) return;
  const Sha256Digest live = engine_.state().Digest();
  const Sha256Digest replayed = replayed_->Digest();
  if (live != replayed) {
    Log().critical("master: at log sequence {} the live state has digest {}, the replayed one {}",
                   record.sequence, ToHex(live), ToHex(replayed));
  }
  MC_CHECK(live == replayed);
}

void Master::Rebuild() {
  Result<ReplicatedState> state =
      ReplayAndTakeOver(seams_.log, seams_.snapshots.snapshots, seams_.clock.WallMs());
  if (state.ok()) {
    MC_PROBE("master.log_read_again");
    Log().info("master: the log is read again up to sequence {}", state->sequence);
    Adopt(*std::move(state));
    return;
  }
  // A full disk is not going to pass while the caller waits: said as it is.
  const Code code =
      state.status().code() == Code::kExhausted ? Code::kExhausted : Code::kUnavailable;
  const Status refusal(code, "the Master cannot serve: " + state.status().ToString());
  MC_PROBE("master.cannot_serve");
  if (refusal != refusing_) Log().error("{}", refusal.message());
  refusing_ = refusal;
  rebuild_at_ms_ = seams_.clock.MonotonicMs() + options_.rebuild_retry_ms;
}

void Master::Adopt(ReplicatedState state) {
  refusing_ = OkStatus();
  clock_.ResumeAt(state.logged_ms);
  if (options_.verify_replay_every > 0) replayed_ = std::make_unique<ReplicatedState>(state);
  engine_.Serve(std::move(state), clock_.NowMs());
}

#define MOONCAKE_DEFINE(Name)                                                    \
  void Master::Name(const rpc::Caller& caller, const v1::Name##Request& request, \
                    v1::Name##Reply* reply, Done done) {                         \
    Submit(#Name, caller, request, reply, std::move(done));                      \
  }
MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

}  // namespace mooncake::master
