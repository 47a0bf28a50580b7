// Placements from columns: no Python object a fragment, and no GIL once the columns are read.
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "manifest/validate.h"
#include "python/bindings.h"
#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/extension_values.h"
#include "python/handles.h"

namespace mooncake::python {

namespace {

using Column = std::vector<int64_t>;

template <class T>
void Widen(const void* data, size_t count, const char* name, Column& column) {
  column.resize(count);
  const char* bytes = static_cast<const char*>(data);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 8 && !std::is_signed_v<T>) {
      if (value > static_cast<T>(INT64_MAX)) {
        Refuse(fmt::format("{}[{}] must fit in a signed 64-bit integer, got {}", name, i, value));
      }
    }
    column[i] = static_cast<int64_t>(value);
  }
}

// False when `format` is not a native integer type.
bool WidenFormat(char format, const void* data, size_t count, const char* name, Column& column) {
  switch (format) {
    case 'b':
      return Widen<signed char>(data, count, name, column), true;
    case 'B':
      return Widen<unsigned char>(data, count, name, column), true;
    case 'h':
      return Widen<short>(data, count, name, column), true;
    case 'H':
      return Widen<unsigned short>(data, count, name, column), true;
    case 'i':
      return Widen<int>(data, count, name, column), true;
    case 'I':
      return Widen<unsigned>(data, count, name, column), true;
    case 'l':
      return Widen<long>(data, count, name, column), true;
    case 'L':
      return Widen<unsigned long>(data, count, name, column), true;
    case 'q':
      return Widen<long long>(data, count, name, column), true;
    case 'Q':
      return Widen<unsigned long long>(data, count, name, column), true;
    default:
      return false;
  }
}

struct BufferView {
  Py_buffer buffer{};
  bool held = false;
  ~BufferView() {
    if (held) PyBuffer_Release(&buffer);
  }
};

Column ReadColumn(nb::handle value, const char* name) {
  if (!PyObject_CheckBuffer(value.ptr())) return Ints(value, name, INT64_MIN);
  BufferView view;
  if (PyObject_GetBuffer(value.ptr(), &view.buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    Refuse(fmt::format("{} must be a contiguous buffer", name));
  }
  view.held = true;
  const Py_buffer& buffer = view.buffer;
  const std::string format = buffer.format == nullptr ? "B" : buffer.format;
  // '@', '=' and '<' mean native here: every machine we build for is little-endian.
  const size_t letter = format.size() == 2 && std::strchr("@=<", format[0]) != nullptr ? 1 : 0;
  Column column;
  if (buffer.ndim != 1 || format.size() != letter + 1 ||
      !WidenFormat(format[letter], buffer.buf, static_cast<size_t>(buffer.len / buffer.itemsize),
                   name, column)) {
    Refuse(
        fmt::format("{} must be one-dimensional and of an integer type, got {} dimensions of "
                    "format {}",
                    name, buffer.ndim, format));
  }
  return column;
}

std::optional<Column> ReadOptionalColumn(nb::handle value, const char* name) {
  if (value.is_none()) return std::nullopt;
  return ReadColumn(value, name);
}

void RequireRows(const Column& column, size_t rows, const char* name) {
  if (column.size() == rows) return;
  Refuse(fmt::format("{} must have {} rows, got {}", name, rows, column.size()));
}

size_t IndexOf(int64_t value, size_t size, const char* name, size_t row) {
  if (value >= 0 && static_cast<size_t>(value) < size) return static_cast<size_t>(value);
  Refuse(fmt::format("{}[{}] must be at least 0 and less than {}, got {}", name, row, size, value));
}

// -1 is none.
std::optional<int64_t> OptionalCell(const std::optional<Column>& column, size_t row) {
  if (!column || (*column)[row] == -1) return std::nullopt;
  return (*column)[row];
}

// Hands out the pieces of a flat ragged column.
class Pieces {
 public:
  Pieces(const Column& column, const char* name) : column_(column), name_(name) {}

  std::span<const int64_t> Take(size_t count) {
    if (count > column_.size() - next_) {
      Refuse(fmt::format("{} is too short: {} numbers", name_, column_.size()));
    }
    next_ += count;
    return std::span(column_).subspan(next_ - count, count);
  }
  void RequireAllTaken() const {
    if (next_ == column_.size()) return;
    Refuse(fmt::format("{} is too long: {} numbers, {} are used", name_, column_.size(), next_));
  }

 private:
  const Column& column_;
  const char* name_;
  size_t next_ = 0;
};

// What a kind says of its tensors. The extension's ownership and its scale tensor are each tensor's
// own; the scale tensor's id is empty here.
struct Kind {
  manifest::TensorDescriptor tensor;
  std::optional<manifest::TensorExtension> extension;
  bool owned = false;
};

bool Bool(nb::handle value, const char* name) {
  if (!PyBool_Check(value.ptr())) Refuse(fmt::format("{} must be true or false", name));
  return value.is(nb::bool_(true));
}

Kind ReadKind(nb::handle object) {
  Kind kind;
  manifest::TensorDescriptor& tensor = kind.tensor;
  tensor.dtype = Text(Get(object, N().dtype), "dtype");
  tensor.itemsize = Int(Get(object, N().itemsize), "itemsize", 1);
  tensor.layout_fingerprint = Text(Get(object, N().layout_fingerprint), "layout_fingerprint");
  for (nb::handle axis :
       AsTuple(Get(object, N().parallel_axes), "parallel_axes", "must be a sequence")) {
    tensor.parallel_axes.push_back(ReadAxis(axis));
    const manifest::ParallelAxis& read = tensor.parallel_axes.back();
    if (read.semantics == manifest::AxisSemantics::kSplit) tensor.shard_dims.push_back(read.dim);
  }
  std::sort(tensor.shard_dims.begin(), tensor.shard_dims.end());
  if (!Classes().extended_kind.IsInstance(object)) return kind;
  kind.extension = ReadSharedExtension(object);
  if (const nb::object shape = Get(object, N().block_shape); !shape.is_none()) {
    kind.extension->block_scales = manifest::BlockScales{
        "", Ints(shape, "block_shape", 1), Bool(Get(object, N().shareable), "shareable")};
  }
  kind.owned = Bool(Get(object, N().owned), "owned");
  return kind;
}

// The tensor's own extension: its kind's, with the id of its scale tensor.
std::shared_ptr<const manifest::TensorExtension> ExtensionOf(const Kind& kind,
                                                             std::optional<int64_t> scale,
                                                             const nb::tuple& ids, size_t row) {
  const bool has_blocks = kind.extension && kind.extension->block_scales;
  if (has_blocks != scale.has_value()) {
    Refuse(
        fmt::format("scale_of[{}] must name a tensor where the kind has a block_shape, and only "
                    "there",
                    row));
  }
  if (!kind.extension) return nullptr;
  manifest::TensorExtension extension = *kind.extension;
  if (has_blocks) {
    const size_t scale_row = IndexOf(*scale, ids.size(), "scale_of", row);
    extension.block_scales->scale_tensor_id = Text(ids[scale_row], "tensor_id");
  }
  return std::make_shared<const manifest::TensorExtension>(std::move(extension));
}

struct TensorRows {
  std::vector<manifest::TensorDescriptor> tensors;
  std::vector<bool> owned;  // their one tiling is what their fragments are
};

TensorRows ReadTensors(nb::handle columns) {
  const nb::tuple ids = AsTuple(Get(columns, N().tensor_ids), "tensor_ids", "must be a sequence");
  const size_t rows = ids.size();
  const Column ranks = ReadColumn(Get(columns, N().ranks), "ranks");
  const Column shapes = ReadColumn(Get(columns, N().shapes), "tensor shapes");
  const Column kind_of = ReadColumn(Get(columns, N().kind_of), "kind_of");
  const auto layer_ids = ReadOptionalColumn(Get(columns, N().layer_ids), "layer_ids");
  const auto expert_ids = ReadOptionalColumn(Get(columns, N().expert_ids), "expert_ids");
  const auto scale_of = ReadOptionalColumn(Get(columns, N().scale_of), "scale_of");
  RequireRows(ranks, rows, "ranks");
  RequireRows(kind_of, rows, "kind_of");
  if (layer_ids) RequireRows(*layer_ids, rows, "layer_ids");
  if (expert_ids) RequireRows(*expert_ids, rows, "expert_ids");
  if (scale_of) RequireRows(*scale_of, rows, "scale_of");
  std::vector<Kind> kinds;
  for (nb::handle kind : AsTuple(Get(columns, N().kinds), "kinds", "must be a sequence")) {
    kinds.push_back(ReadKind(kind));
  }
  Pieces shape_pieces(shapes, "tensor shapes");
  TensorRows made;
  made.tensors.reserve(rows);
  for (size_t row = 0; row < rows; ++row) {
    const Kind& kind = kinds[IndexOf(kind_of[row], kinds.size(), "kind_of", row)];
    manifest::TensorDescriptor tensor = kind.tensor;
    tensor.tensor_id = Text(ids[row], "tensor_id");
    if (ranks[row] < 0) Refuse(fmt::format("ranks[{}] must be at least 0", row));
    const auto shape = shape_pieces.Take(static_cast<size_t>(ranks[row]));
    tensor.global_shape.assign(shape.begin(), shape.end());
    tensor.layer_id = OptionalCell(layer_ids, row);
    tensor.expert_id = OptionalCell(expert_ids, row);
    tensor.extension = ExtensionOf(kind, OptionalCell(scale_of, row), ids, row);
    made.tensors.push_back(std::move(tensor));
    made.owned.push_back(kind.owned);
  }
  shape_pieces.RequireAllTaken();
  return made;
}

struct FragmentRows {
  Column tensor_of, participant_of, offsets, shapes;
  std::optional<Column> pipeline_stage_ids, alias_group_of, slots;
  std::vector<std::vector<std::string>> alias_groups;
};

FragmentRows ReadFragmentRows(nb::handle columns) {
  FragmentRows rows;
  rows.tensor_of = ReadColumn(Get(columns, N().tensor_of), "tensor_of");
  rows.participant_of = ReadColumn(Get(columns, N().participant_of), "participant_of");
  rows.offsets = ReadColumn(Get(columns, N().offsets), "fragment offsets");
  rows.shapes = ReadColumn(Get(columns, N().shapes), "fragment shapes");
  rows.pipeline_stage_ids =
      ReadOptionalColumn(Get(columns, N().pipeline_stage_ids), "pipeline_stage_ids");
  rows.alias_group_of = ReadOptionalColumn(Get(columns, N().alias_group_of), "alias_group_of");
  rows.slots = ReadOptionalColumn(Get(columns, N().slots), "slots");
  for (nb::handle group :
       AsTuple(Get(columns, N().alias_groups), "alias_groups", "must be a sequence")) {
    rows.alias_groups.push_back(ReadAliases(group));
  }
  const size_t count = rows.tensor_of.size();
  RequireRows(rows.participant_of, count, "participant_of");
  if (rows.pipeline_stage_ids) {
    RequireRows(*rows.pipeline_stage_ids, count, "pipeline_stage_ids");
  }
  if (rows.alias_group_of) RequireRows(*rows.alias_group_of, count, "alias_group_of");
  if (rows.slots) RequireRows(*rows.slots, count, "slots");
  return rows;
}

// Fragments with derived ids and sizes. Runs without the GIL: failures are Status values.
Result<std::vector<manifest::PlacementFragment>> MakeFragments(
    const FragmentRows& rows, const std::vector<size_t>& shape_begins,
    const std::vector<manifest::TensorDescriptor>& tensors,
    const manifest::ParallelTopology& topology) {
  std::vector<manifest::PlacementFragment> fragments;
  fragments.reserve(rows.tensor_of.size());
  for (size_t row = 0; row < rows.tensor_of.size(); ++row) {
    const auto& tensor = tensors[static_cast<size_t>(rows.tensor_of[row])];
    const size_t rank = tensor.global_shape.size();
    const bool is_extended = tensor.extension != nullptr;
    manifest::PlacementFragment fragment;
    fragment.tensor_id = tensor.tensor_id;
    const auto offset = std::span(rows.offsets).subspan(shape_begins[row], rank);
    const auto shape = std::span(rows.shapes).subspan(shape_begins[row], rank);
    fragment.global_offset.assign(offset.begin(), offset.end());
    fragment.local_shape.assign(shape.begin(), shape.end());
    uint64_t nbytes = static_cast<uint64_t>(tensor.itemsize);
    for (const int64_t extent : shape) {
      if (extent < (is_extended ? 0 : 1)) {
        return InvalidArgument(
            fmt::format("local_shape must be at least {}, got {} in a fragment of {}",
                        is_extended ? 0 : 1, extent, tensor.tensor_id));
      }
      if (__builtin_mul_overflow(nbytes, static_cast<uint64_t>(extent), &nbytes)) {
        return InvalidArgument(fmt::format(
            "nbytes must fit in an unsigned 64-bit integer: a fragment of {}", tensor.tensor_id));
      }
    }
    fragment.nbytes = nbytes;
    fragment.rank = topology.participants[static_cast<size_t>(rows.participant_of[row])].rank;
    fragment.pipeline_stage_id = OptionalCell(rows.pipeline_stage_ids, row);
    if (const auto group = OptionalCell(rows.alias_group_of, row)) {
      fragment.aliases = rows.alias_groups[static_cast<size_t>(*group)];
    }
    fragment.slot = OptionalCell(rows.slots, row);
    MC_ASSIGN_OR_RETURN(
        fragment, manifest::MakePlacementFragment(std::move(fragment), std::nullopt,
                                                  is_extended ? manifest::FragmentForm::kExtended
                                                              : manifest::FragmentForm::kBase));
    fragments.push_back(std::move(fragment));
  }
  return fragments;
}

// Every index in range, every ragged column exactly as long as its rows say. Where each row begins.
std::vector<size_t> CheckRows(const FragmentRows& rows,
                              const std::vector<manifest::TensorDescriptor>& tensors,
                              const manifest::ParallelTopology& topology) {
  Pieces offsets(rows.offsets, "fragment offsets");
  Pieces shapes(rows.shapes, "fragment shapes");
  std::vector<size_t> begins;
  begins.reserve(rows.tensor_of.size());
  size_t begin = 0;
  for (size_t row = 0; row < rows.tensor_of.size(); ++row) {
    const size_t tensor = IndexOf(rows.tensor_of[row], tensors.size(), "tensor_of", row);
    IndexOf(rows.participant_of[row], topology.participants.size(), "participant_of", row);
    if (const auto group = OptionalCell(rows.alias_group_of, row)) {
      IndexOf(*group, rows.alias_groups.size(), "alias_group_of", row);
    }
    const size_t rank = tensors[tensor].global_shape.size();
    offsets.Take(rank);
    shapes.Take(rank);
    begins.push_back(begin);
    begin += rank;
  }
  offsets.RequireAllTaken();
  shapes.RequireAllTaken();
  return begins;
}

// Gives each owned tensor the one tiling that its fragments are: each box with all its holders.
void DeclareOwners(const TensorRows& made, const FragmentRows& rows,
                   const manifest::ParallelTopology& topology,
                   manifest::FragmentInventory& inventory) {
  std::vector<std::vector<size_t>> held(made.tensors.size());
  for (size_t row = 0; row < rows.tensor_of.size(); ++row) {
    const auto tensor = static_cast<size_t>(rows.tensor_of[row]);
    if (made.owned[tensor] && !inventory.fragments[row].is_empty()) held[tensor].push_back(row);
  }
  for (size_t tensor = 0; tensor < held.size(); ++tensor) {
    if (held[tensor].empty()) continue;
    const auto owner = [&](size_t row) -> const std::string& {
      return topology.participants[static_cast<size_t>(rows.participant_of[row])].participant_id;
    };
    const auto key = [&](size_t row) {
      const manifest::PlacementFragment& fragment = inventory.fragments[row];
      return std::tie(fragment.global_offset, fragment.local_shape, owner(row));
    };
    std::sort(held[tensor].begin(), held[tensor].end(),
              [&](size_t a, size_t b) { return key(a) < key(b); });
    manifest::OwnedTiling tiling;
    for (const size_t row : held[tensor]) {
      const manifest::PlacementFragment& fragment = inventory.fragments[row];
      if (tiling.empty() || tiling.back().offset != fragment.global_offset ||
          tiling.back().shape != fragment.local_shape) {
        tiling.push_back({fragment.global_offset, fragment.local_shape, {}});
      }
      tiling.back().owners.push_back(owner(row));
    }
    manifest::TensorDescriptor& descriptor = inventory.tensors[tensor];
    manifest::TensorExtension extension = *descriptor.extension;
    extension.ownership = {std::move(tiling)};
    descriptor.extension = std::make_shared<const manifest::TensorExtension>(std::move(extension));
  }
}

PlacementHandle PlacementFromColumns(nb::handle resource_id, nb::handle revision,
                                     nb::handle weight_generation, nb::handle placement_set_id,
                                     nb::handle topology, nb::handle tensors, nb::handle fragments,
                                     nb::handle omitted_tensors) {
  manifest::FragmentInventory fields;
  fields.resource_id = Text(resource_id, "resource_id");
  fields.revision = Text(revision, "revision");
  fields.weight_generation = U64(weight_generation, "weight_generation", 0);
  fields.placement_set_id = Text(placement_set_id, "placement_set_id");
  if (!Classes().parallel_topology.IsInstance(topology)) {
    Refuse("topology must be a ParallelTopology");
  }
  fields.topology = ReadTopology(topology);
  const TensorRows made_tensors = ReadTensors(tensors);
  fields.tensors = made_tensors.tensors;
  for (nb::handle id : AsTuple(omitted_tensors, "omitted_tensors", "must be a sequence")) {
    fields.omitted_tensors.push_back(Text(id, "omitted_tensors"));
  }
  const FragmentRows rows = ReadFragmentRows(fragments);
  const std::vector<size_t> begins = CheckRows(rows, fields.tensors, fields.topology);
  Result<manifest::PlacementPtr> made = [&]() -> Result<manifest::PlacementPtr> {
    nb::gil_scoped_release release;
    MC_ASSIGN_OR_RETURN(fields.fragments,
                        MakeFragments(rows, begins, fields.tensors, fields.topology));
    DeclareOwners(made_tensors, rows, fields.topology, fields);
    return manifest::PlacementFromFragments(std::move(fields));
  }();
  return {ValueOrThrow(std::move(made))};
}

}  // namespace

void BindColumns(nb::module_& m) {
  m.def("placement_from_columns", &PlacementFromColumns, AnyArg("resource_id"), AnyArg("revision"),
        AnyArg("weight_generation"), AnyArg("placement_set_id"), AnyArg("topology"),
        AnyArg("tensors"), AnyArg("fragments"), AnyArg("omitted_tensors"));
}

}  // namespace mooncake::python
