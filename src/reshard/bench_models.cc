#include "reshard/bench_models.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "manifest/validate.h"

namespace mooncake::reshard {
namespace {

using manifest::AxisKind;
using manifest::AxisSemantics;
using manifest::Extents;
using manifest::ParallelRank;

// How a tensor lies on its workers: the pipeline stage and expert-parallel rank that own it, and
// the dimensions that tp and ep split (-1: replicated along tp).
struct Layout {
  int64_t stage = 0;
  int64_t expert_rank = -1;  // -1: not owned by one
  int64_t tp_dim = -1;
  bool ep_splits_experts = false;  // along dimension 0
};

class ModelBuilder {
 public:
  explicit ModelBuilder(const Parallelism& parallelism) : p_(parallelism) {
    manifest::ParallelTopology topology;
    topology.tp_size = p_.tp;
    topology.pp_size = p_.pp;
    topology.ep_size = p_.ep;
    topology.dp_size = p_.dp;
    for (int64_t dp = 0; dp < p_.dp; ++dp) {
      for (int64_t pp = 0; pp < p_.pp; ++pp) {
        for (int64_t ep = 0; ep < (p_.shared_workers ? 1 : p_.ep); ++ep) {
          for (int64_t tp = 0; tp < p_.tp; ++tp) {
            const ParallelRank rank{
                .dp = dp, .tp = tp, .pp = pp, .ep = p_.shared_workers ? tp : ep};
            topology.participants.push_back(
                {"worker-" + std::to_string(topology.participants.size()), rank});
          }
        }
      }
    }
    fields_.resource_id = "model";
    fields_.revision = "r1";
    fields_.placement_set_id = "set";
    fields_.topology = manifest::MakeTopology(std::move(topology)).value();
    for (const manifest::TopologyParticipant& participant : fields_.topology.participants) {
      manifest::PlacementPart& part = fields_.parts.emplace_back();
      part.resource_id = fields_.resource_id;
      part.revision = fields_.revision;
      part.placement_set_id = fields_.placement_set_id;
      part.topology_id = fields_.topology.topology_id;
      part.participant_id = participant.participant_id;
      part.rank = participant.rank;
    }
  }

  int64_t StageOf(int64_t layer, int64_t layers) const { return layer * p_.pp / layers; }
  int64_t last_stage() const { return p_.pp - 1; }
  int64_t ExpertRankOf(int64_t expert, int64_t experts) const { return expert * p_.ep / experts; }

  void Add(std::string id, Extents shape, int64_t itemsize, const Layout& layout) {
    manifest::TensorDescriptor tensor;
    tensor.tensor_id = std::move(id);
    tensor.global_shape = std::move(shape);
    tensor.itemsize = itemsize;
    tensor.dtype = itemsize == 1 ? "float8_e4m3fn" : itemsize == 2 ? "bfloat16" : "float32";
    tensor.layout_fingerprint = "row-major-v1";
    DeclareAxes(layout, &tensor);
    std::sort(tensor.shard_dims.begin(), tensor.shard_dims.end());
    const auto made = std::make_shared<const manifest::TensorDescriptor>(
        manifest::MakeTensorDescriptor(std::move(tensor)).value());
    for (manifest::PlacementPart& part : fields_.parts) AddToPart(made, layout, &part);
  }

  manifest::PlacementPtr Build() {
    auto placement = manifest::MakePlacement(std::move(fields_));
    MC_CHECK(placement.ok());
    return *placement;
  }

 private:
  bool owned_along_tp(const Layout& layout) const {
    return p_.shared_workers && layout.expert_rank >= 0;
  }

  void DeclareAxes(const Layout& layout, manifest::TensorDescriptor* tensor) const {
    const auto declare = [tensor](AxisKind kind, AxisSemantics semantics, int64_t dim = 0) {
      tensor->parallel_axes.push_back({kind, semantics, dim});
      if (semantics == AxisSemantics::kSplit) tensor->shard_dims.push_back(dim);
    };
    declare(AxisKind::kDp, AxisSemantics::kReplicated);
    declare(AxisKind::kPp, AxisSemantics::kOwnership);
    if (layout.ep_splits_experts) {
      declare(AxisKind::kEp, AxisSemantics::kSplit, 0);
    } else if (layout.expert_rank >= 0) {
      declare(AxisKind::kEp, AxisSemantics::kOwnership);
    } else if (!p_.shared_workers) {
      declare(AxisKind::kEp, AxisSemantics::kReplicated);
    }
    if (owned_along_tp(layout)) {
      declare(AxisKind::kTp, AxisSemantics::kOwnership);
    } else if (!(p_.shared_workers && layout.ep_splits_experts)) {
      declare(AxisKind::kTp,
              layout.tp_dim >= 0 ? AxisSemantics::kSplit : AxisSemantics::kReplicated,
              std::max<int64_t>(layout.tp_dim, 0));
    }
  }

  void AddToPart(const manifest::SharedTensors::Pointer& made, const Layout& layout,
                 manifest::PlacementPart* part) {
    const manifest::TensorDescriptor& tensor = *made;
    const ParallelRank& rank = part->rank;
    if (rank.pp != layout.stage) return;
    if (layout.expert_rank >= 0 && rank.ep != layout.expert_rank) return;
    manifest::PlacementFragment fragment;
    fragment.tensor_id = tensor.tensor_id;
    fragment.global_offset = Extents(tensor.global_shape.size(), 0);
    fragment.local_shape = tensor.global_shape;
    const auto cut = [&](int64_t dim, int64_t coordinate, int64_t size) {
      const auto d = static_cast<size_t>(dim);
      const int64_t extent = tensor.global_shape[d];
      fragment.global_offset[d] = coordinate * extent / size;
      fragment.local_shape[d] = (coordinate + 1) * extent / size - fragment.global_offset[d];
    };
    if (layout.ep_splits_experts) cut(0, rank.ep, p_.ep);
    if (layout.tp_dim >= 0 && !owned_along_tp(layout) &&
        !(p_.shared_workers && layout.ep_splits_experts)) {
      cut(layout.tp_dim, rank.tp, p_.tp);
    }
    fragment.nbytes = static_cast<uint64_t>(tensor.itemsize);
    for (int64_t extent : fragment.local_shape) fragment.nbytes *= static_cast<uint64_t>(extent);
    fragment.rank = rank;
    part->tensors.push_back(made);
    part->fragments.push_back(manifest::MakePlacementFragment(std::move(fragment)).value());
  }

  Parallelism p_;
  manifest::PlacementFields fields_;
};

std::string Layer(int64_t layer) { return "model.layers." + std::to_string(layer); }

}  // namespace

manifest::PlacementPtr Qwen3MoePlacement(const Parallelism& parallelism, bool grouped_experts) {
  constexpr int64_t kLayers = 94, kExperts = 128, kHidden = 4096, kExpertWidth = 1536;
  constexpr int64_t kVocabulary = 151936, kQuery = 64 * 128, kKeyValue = 4 * 128;
  ModelBuilder builder(parallelism);
  builder.Add("model.embed_tokens.weight", {kVocabulary, kHidden}, 2, {.stage = 0, .tp_dim = 0});
  builder.Add("lm_head.weight", {kVocabulary, kHidden}, 2,
              {.stage = builder.last_stage(), .tp_dim = 0});
  builder.Add("model.norm.weight", {kHidden}, 2, {.stage = builder.last_stage()});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = Layer(layer);
    const int64_t stage = builder.StageOf(layer, kLayers);
    builder.Add(name + ".self_attn.q_proj.weight", {kQuery, kHidden}, 2,
                {.stage = stage, .tp_dim = 0});
    builder.Add(name + ".self_attn.k_proj.weight", {kKeyValue, kHidden}, 2,
                {.stage = stage, .tp_dim = 0});
    builder.Add(name + ".self_attn.v_proj.weight", {kKeyValue, kHidden}, 2,
                {.stage = stage, .tp_dim = 0});
    builder.Add(name + ".self_attn.o_proj.weight", {kHidden, kQuery}, 2,
                {.stage = stage, .tp_dim = 1});
    builder.Add(name + ".self_attn.q_norm.weight", {128}, 2, {.stage = stage});
    builder.Add(name + ".self_attn.k_norm.weight", {128}, 2, {.stage = stage});
    builder.Add(name + ".input_layernorm.weight", {kHidden}, 2, {.stage = stage});
    builder.Add(name + ".post_attention_layernorm.weight", {kHidden}, 2, {.stage = stage});
    builder.Add(name + ".mlp.gate.weight", {kExperts, kHidden}, 2, {.stage = stage});
    if (grouped_experts) {
      builder.Add(name + ".mlp.experts.gate_up_proj", {kExperts, 2 * kExpertWidth, kHidden}, 2,
                  {.stage = stage, .tp_dim = 1, .ep_splits_experts = true});
      builder.Add(name + ".mlp.experts.down_proj", {kExperts, kHidden, kExpertWidth}, 2,
                  {.stage = stage, .tp_dim = 2, .ep_splits_experts = true});
      continue;
    }
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const std::string prefix = name + ".mlp.experts." + std::to_string(expert);
      const int64_t owner = builder.ExpertRankOf(expert, kExperts);
      builder.Add(prefix + ".gate_proj.weight", {kExpertWidth, kHidden}, 2,
                  {.stage = stage, .expert_rank = owner, .tp_dim = 0});
      builder.Add(prefix + ".up_proj.weight", {kExpertWidth, kHidden}, 2,
                  {.stage = stage, .expert_rank = owner, .tp_dim = 0});
      builder.Add(prefix + ".down_proj.weight", {kHidden, kExpertWidth}, 2,
                  {.stage = stage, .expert_rank = owner, .tp_dim = 1});
    }
  }
  return builder.Build();
}

manifest::PlacementPtr DeepSeekV3Placement(const Parallelism& parallelism) {
  constexpr int64_t kLayers = 61, kDenseLayers = 3, kExperts = 256, kHidden = 7168;
  constexpr int64_t kExpertWidth = 2048, kDenseWidth = 18432, kVocabulary = 129280, kBlock = 128;
  ModelBuilder builder(parallelism);
  // An fp8 matrix and the scales of its 128 x 128 blocks, cut alike.
  const auto add_quantised = [&](const std::string& name, int64_t rows, int64_t columns,
                                 const Layout& layout) {
    builder.Add(name + ".weight", {rows, columns}, 1, layout);
    builder.Add(name + ".weight_scale_inv",
                {(rows + kBlock - 1) / kBlock, (columns + kBlock - 1) / kBlock}, 4, layout);
  };
  builder.Add("model.embed_tokens.weight", {kVocabulary, kHidden}, 2, {.stage = 0, .tp_dim = 0});
  builder.Add("lm_head.weight", {kVocabulary, kHidden}, 2,
              {.stage = builder.last_stage(), .tp_dim = 0});
  builder.Add("model.norm.weight", {kHidden}, 2, {.stage = builder.last_stage()});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = Layer(layer);
    const int64_t stage = builder.StageOf(layer, kLayers);
    const Layout whole{.stage = stage};
    const Layout rows{.stage = stage, .tp_dim = 0};
    const Layout columns{.stage = stage, .tp_dim = 1};
    builder.Add(name + ".input_layernorm.weight", {kHidden}, 2, whole);
    builder.Add(name + ".post_attention_layernorm.weight", {kHidden}, 2, whole);
    builder.Add(name + ".self_attn.q_a_layernorm.weight", {1536}, 2, whole);
    builder.Add(name + ".self_attn.kv_a_layernorm.weight", {512}, 2, whole);
    add_quantised(name + ".self_attn.q_a_proj", 1536, kHidden, whole);
    add_quantised(name + ".self_attn.q_b_proj", 128 * 192, 1536, rows);
    add_quantised(name + ".self_attn.kv_a_proj_with_mqa", 576, kHidden, whole);
    add_quantised(name + ".self_attn.kv_b_proj", 128 * 256, 512, rows);
    add_quantised(name + ".self_attn.o_proj", kHidden, 128 * 128, columns);
    if (layer < kDenseLayers) {
      add_quantised(name + ".mlp.gate_proj", kDenseWidth, kHidden, rows);
      add_quantised(name + ".mlp.up_proj", kDenseWidth, kHidden, rows);
      add_quantised(name + ".mlp.down_proj", kHidden, kDenseWidth, columns);
      continue;
    }
    builder.Add(name + ".mlp.gate.weight", {kExperts, kHidden}, 2, whole);
    builder.Add(name + ".mlp.gate.e_score_correction_bias", {kExperts}, 4, whole);
    add_quantised(name + ".mlp.shared_experts.gate_proj", kExpertWidth, kHidden, rows);
    add_quantised(name + ".mlp.shared_experts.up_proj", kExpertWidth, kHidden, rows);
    add_quantised(name + ".mlp.shared_experts.down_proj", kHidden, kExpertWidth, columns);
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const std::string prefix = name + ".mlp.experts." + std::to_string(expert);
      Layout expert_rows = rows;
      Layout expert_columns = columns;
      expert_rows.expert_rank = builder.ExpertRankOf(expert, kExperts);
      expert_columns.expert_rank = expert_rows.expert_rank;
      add_quantised(prefix + ".gate_proj", kExpertWidth, kHidden, expert_rows);
      add_quantised(prefix + ".up_proj", kExpertWidth, kHidden, expert_rows);
      add_quantised(prefix + ".down_proj", kHidden, kExpertWidth, expert_columns);
    }
  }
  return builder.Build();
}

manifest::PlacementPtr CutCubePlacement(int64_t dim, int64_t ranks) {
  ModelBuilder builder({.tp = ranks});
  builder.Add("w", {32, 8192, 8192}, 2, {.stage = 0, .tp_dim = dim});
  return builder.Build();
}

manifest::PlacementPtr BlockedMatrixPlacement(int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 3;
  manifest::FragmentInventory inventory;
  inventory.resource_id = "model";
  inventory.revision = "r1";
  inventory.placement_set_id = "set";
  inventory.topology.participants = {{"worker-0", {}}};
  inventory.topology = manifest::MakeTopology(std::move(inventory.topology)).value();
  manifest::TensorDescriptor tensor;
  tensor.tensor_id = "w";
  // Any number of rows and columns of blocks tiles the same matrix, unevenly.
  tensor.global_shape = {512 * kBlock, 512 * kBlock};
  tensor.dtype = "bfloat16";
  tensor.itemsize = 2;
  tensor.layout_fingerprint = "row-major-v1";
  const int64_t height = tensor.global_shape[0];
  const int64_t width = tensor.global_shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      manifest::PlacementFragment fragment;
      fragment.tensor_id = "w";
      fragment.global_offset = {r * height / rows, c * width / columns};
      fragment.local_shape = {(r + 1) * height / rows - fragment.global_offset[0],
                              (c + 1) * width / columns - fragment.global_offset[1]};
      fragment.nbytes =
          2 * static_cast<uint64_t>(fragment.local_shape[0] * fragment.local_shape[1]);
      inventory.fragments.push_back(manifest::MakePlacementFragment(std::move(fragment)).value());
    }
  }
  inventory.tensors.push_back(std::move(tensor));
  return manifest::PlacementFromFragments(std::move(inventory)).value();
}

}  // namespace mooncake::reshard
