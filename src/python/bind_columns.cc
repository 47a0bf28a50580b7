// Placements from columns: no Python object a fragment, and no GIL once the columns are read.
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manifest/ownership.h"
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
    column[i] = static_cast<int64_t>(+value);
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

void RequireRows(const Column& column, size_t rows, const char* name) {
  if (column.size() == rows) return;
  Refuse(fmt::format("{} must have {} rows, got {}", name, rows, column.size()));
}

std::optional<Column> ReadOptionalColumn(nb::handle value, const char* name, size_t rows) {
  if (value.is_none()) return std::nullopt;
  Column column = ReadColumn(value, name);
  RequireRows(column, rows, name);
  return column;
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

// What tensors have in common, and how the rest of their extension is made.
struct Kind {
  manifest::TensorDescriptor tensor;
  bool owned = false;                            // the fragments say who holds what
  std::optional<manifest::Extents> block_shape;  // `scale_of` names the scales
  bool shareable = true;
};

bool Flag(nb::handle value, const char* name) {
  if (!PyBool_Check(value.ptr())) Refuse(fmt::format("{} must be true or false", name));
  return value.is(nb::bool_(true));
}

void ReadExtendedKind(nb::handle object, Kind* kind) {
  manifest::TensorExtension extension;
  ReadCommonForms(object, &extension);
  kind->tensor.extension = std::make_shared<const manifest::TensorExtension>(std::move(extension));
  kind->owned = Flag(Get(object, N().owned), "owned");
  if (const nb::object shape = Get(object, N().block_shape); !shape.is_none()) {
    kind->block_shape = Ints(shape, "block_shape", 1);
  }
  kind->shareable = Flag(Get(object, N().shareable), "shareable");
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
  if (Classes().extended_kind.IsInstance(object)) ReadExtendedKind(object, &kind);
  return kind;
}

struct TensorRows {
  std::vector<manifest::TensorDescriptor> tensors;
  std::vector<bool> owned;
};

// Gives the tensors whose kind has a block shape the scales that `scale_of` names.
void SetBlockScales(const std::vector<Kind>& kinds, const Column& kind_of,
                    const std::optional<Column>& scale_of,
                    std::vector<manifest::TensorDescriptor>* tensors) {
  for (size_t row = 0; row < tensors->size(); ++row) {
    const Kind& kind = kinds[static_cast<size_t>(kind_of[row])];
    const auto scale = OptionalCell(scale_of, row);
    if (scale.has_value() != kind.block_shape.has_value()) {
      Refuse(fmt::format("scale_of[{}] must be {} for a kind {} block_shape: {}", row,
                         kind.block_shape ? "a tensor" : "-1",
                         kind.block_shape ? "with" : "without", (*tensors)[row].tensor_id));
    }
    if (!scale) continue;
    manifest::TensorExtension extension = *(*tensors)[row].extension;
    extension.block_scales = {
        .scale_tensor_id = (*tensors)[IndexOf(*scale, tensors->size(), "scale_of", row)].tensor_id,
        .block_shape = *kind.block_shape,
        .shareable = kind.shareable};
    (*tensors)[row].extension =
        std::make_shared<const manifest::TensorExtension>(std::move(extension));
  }
}

TensorRows ReadTensors(nb::handle columns) {
  const nb::tuple ids = AsTuple(Get(columns, N().tensor_ids), "tensor_ids", "must be a sequence");
  const size_t rows = ids.size();
  const Column ranks = ReadColumn(Get(columns, N().ranks), "ranks");
  const Column shapes = ReadColumn(Get(columns, N().shapes), "tensor shapes");
  const Column kind_of = ReadColumn(Get(columns, N().kind_of), "kind_of");
  RequireRows(ranks, rows, "ranks");
  RequireRows(kind_of, rows, "kind_of");
  const auto layer_ids = ReadOptionalColumn(Get(columns, N().layer_ids), "layer_ids", rows);
  const auto expert_ids = ReadOptionalColumn(Get(columns, N().expert_ids), "expert_ids", rows);
  const auto scale_of = ReadOptionalColumn(Get(columns, N().scale_of), "scale_of", rows);
  std::vector<Kind> kinds;
  for (nb::handle kind : AsTuple(Get(columns, N().kinds), "kinds", "must be a sequence")) {
    kinds.push_back(ReadKind(kind));
  }
  Pieces shape_pieces(shapes, "tensor shapes");
  TensorRows made;
  made.tensors.reserve(rows);
  made.owned.reserve(rows);
  for (size_t row = 0; row < rows; ++row) {
    const Kind& kind = kinds[IndexOf(kind_of[row], kinds.size(), "kind_of", row)];
    manifest::TensorDescriptor tensor = kind.tensor;
    tensor.tensor_id = Text(ids[row], "tensor_id");
    if (ranks[row] < 0) Refuse(fmt::format("ranks[{}] must be at least 0", row));
    const auto shape = shape_pieces.Take(static_cast<size_t>(ranks[row]));
    tensor.global_shape.assign(shape.begin(), shape.end());
    tensor.layer_id = OptionalCell(layer_ids, row);
    tensor.expert_id = OptionalCell(expert_ids, row);
    made.tensors.push_back(std::move(tensor));
    made.owned.push_back(kind.owned);
  }
  shape_pieces.RequireAllTaken();
  SetBlockScales(kinds, kind_of, scale_of, &made.tensors);
  return made;
}

struct FragmentRows {
  Column tensor_of, participant_of, offsets, shapes;
  std::optional<Column> pipeline_stage_ids, alias_group_of, slots, tiling_of;
  std::vector<std::vector<std::string>> alias_groups;
  std::vector<size_t> begins;  // where each row's box begins in `offsets` and `shapes`
};

FragmentRows ReadFragmentRows(nb::handle columns) {
  FragmentRows rows;
  rows.tensor_of = ReadColumn(Get(columns, N().tensor_of), "tensor_of");
  rows.participant_of = ReadColumn(Get(columns, N().participant_of), "participant_of");
  rows.offsets = ReadColumn(Get(columns, N().offsets), "fragment offsets");
  rows.shapes = ReadColumn(Get(columns, N().shapes), "fragment shapes");
  const size_t count = rows.tensor_of.size();
  RequireRows(rows.participant_of, count, "participant_of");
  rows.pipeline_stage_ids =
      ReadOptionalColumn(Get(columns, N().pipeline_stage_ids), "pipeline_stage_ids", count);
  rows.alias_group_of =
      ReadOptionalColumn(Get(columns, N().alias_group_of), "alias_group_of", count);
  rows.slots = ReadOptionalColumn(Get(columns, N().slots), "slots", count);
  rows.tiling_of = ReadOptionalColumn(Get(columns, N().tiling_of), "tiling_of", count);
  for (nb::handle group :
       AsTuple(Get(columns, N().alias_groups), "alias_groups", "must be a sequence")) {
    rows.alias_groups.push_back(ReadAliases(group));
  }
  return rows;
}

// A dense fragment's size. Extents of 0 are the extended form's.
Result<uint64_t> BytesOf(const manifest::TensorDescriptor& tensor, std::span<const int64_t> shape) {
  const int64_t least = tensor.extension == nullptr ? 1 : 0;
  uint64_t nbytes = static_cast<uint64_t>(tensor.itemsize);
  for (const int64_t extent : shape) {
    if (extent < least) {
      return InvalidArgument(
          fmt::format("local_shape must be at least {}, got {} in a fragment of {}", least, extent,
                      tensor.tensor_id));
    }
    if (__builtin_mul_overflow(nbytes, static_cast<uint64_t>(extent), &nbytes)) {
      return InvalidArgument(fmt::format(
          "nbytes must fit in an unsigned 64-bit integer: a fragment of {}", tensor.tensor_id));
    }
  }
  return nbytes;
}

// Fragments with derived ids and sizes. Runs without the GIL: failures are Status values.
Result<std::vector<manifest::PlacementFragment>> MakeFragments(
    const FragmentRows& rows, const std::vector<manifest::TensorDescriptor>& tensors,
    const manifest::ParallelTopology& topology) {
  std::vector<manifest::PlacementFragment> fragments;
  fragments.reserve(rows.tensor_of.size());
  for (size_t row = 0; row < rows.tensor_of.size(); ++row) {
    const auto& tensor = tensors[static_cast<size_t>(rows.tensor_of[row])];
    const size_t rank = tensor.global_shape.size();
    manifest::PlacementFragment fragment;
    fragment.tensor_id = tensor.tensor_id;
    const auto offset = std::span(rows.offsets).subspan(rows.begins[row], rank);
    const auto shape = std::span(rows.shapes).subspan(rows.begins[row], rank);
    fragment.global_offset.assign(offset.begin(), offset.end());
    fragment.local_shape.assign(shape.begin(), shape.end());
    MC_ASSIGN_OR_RETURN(fragment.nbytes, BytesOf(tensor, shape));
    fragment.rank = topology.participants[static_cast<size_t>(rows.participant_of[row])].rank;
    fragment.pipeline_stage_id = OptionalCell(rows.pipeline_stage_ids, row);
    fragment.slot = OptionalCell(rows.slots, row);
    if (const auto group = OptionalCell(rows.alias_group_of, row)) {
      fragment.aliases = rows.alias_groups[static_cast<size_t>(*group)];
    }
    const auto form = tensor.extension == nullptr ? manifest::FragmentForm::kBase
                                                  : manifest::FragmentForm::kExtended;
    MC_ASSIGN_OR_RETURN(fragment,
                        manifest::MakePlacementFragment(std::move(fragment), std::nullopt, form));
    fragments.push_back(std::move(fragment));
  }
  return fragments;
}

// Who holds what of the owned tensors: what their fragments say.
void SetOwnership(const FragmentRows& rows, const std::vector<bool>& owned,
                  const manifest::FragmentInventory& inventory,
                  std::vector<manifest::TensorDescriptor>* tensors) {
  std::vector<std::vector<manifest::HeldBox>> held(tensors->size());
  for (size_t row = 0; row < rows.tensor_of.size(); ++row) {
    const auto tensor = static_cast<size_t>(rows.tensor_of[row]);
    if (!owned[tensor]) continue;
    const manifest::PlacementFragment& fragment = inventory.fragments[row];
    held[tensor].push_back(
        {.tiling = rows.tiling_of ? (*rows.tiling_of)[row] : 0,
         .offset = fragment.global_offset,
         .shape = fragment.local_shape,
         .owner = inventory.topology.participants[static_cast<size_t>(rows.participant_of[row])]
                      .participant_id});
  }
  for (size_t t = 0; t < tensors->size(); ++t) {
    if (!owned[t]) continue;
    manifest::TensorExtension extension = *(*tensors)[t].extension;
    extension.ownership = manifest::TilingsOf(std::move(held[t]));
    (*tensors)[t].extension =
        std::make_shared<const manifest::TensorExtension>(std::move(extension));
  }
}

void CheckTiling(const FragmentRows& rows, size_t row, bool owned) {
  if (!rows.tiling_of) return;
  const int64_t tiling = (*rows.tiling_of)[row];
  if (tiling < 0) Refuse(fmt::format("tiling_of[{}] must be at least 0, got {}", row, tiling));
  if (tiling > 0 && !owned) {
    Refuse(
        fmt::format("tiling_of[{}] must be 0 for a tensor that is not owned, got {}", row, tiling));
  }
}

// Every index in range, every ragged column exactly as long as its rows say.
void CheckRows(const TensorRows& tensors, const manifest::ParallelTopology& topology,
               FragmentRows* rows) {
  Pieces offsets(rows->offsets, "fragment offsets");
  Pieces shapes(rows->shapes, "fragment shapes");
  rows->begins.reserve(rows->tensor_of.size());
  size_t begin = 0;
  for (size_t row = 0; row < rows->tensor_of.size(); ++row) {
    const size_t tensor = IndexOf(rows->tensor_of[row], tensors.tensors.size(), "tensor_of", row);
    IndexOf(rows->participant_of[row], topology.participants.size(), "participant_of", row);
    if (const auto group = OptionalCell(rows->alias_group_of, row)) {
      IndexOf(*group, rows->alias_groups.size(), "alias_group_of", row);
    }
    CheckTiling(*rows, row, tensors.owned[tensor]);
    const size_t rank = tensors.tensors[tensor].global_shape.size();
    offsets.Take(rank);
    shapes.Take(rank);
    rows->begins.push_back(begin);
    begin += rank;
  }
  offsets.RequireAllTaken();
  shapes.RequireAllTaken();
}

PlacementHandle PlacementFromColumns(nb::handle resource_id, nb::handle revision,
                                     nb::handle weight_generation, nb::handle placement_set_id,
                                     nb::handle topology, nb::handle tensor_columns,
                                     nb::handle fragment_columns, nb::handle omitted_tensors) {
  manifest::FragmentInventory fields;
  fields.resource_id = Text(resource_id, "resource_id");
  fields.revision = Text(revision, "revision");
  fields.weight_generation = U64(weight_generation, "weight_generation", 0);
  fields.placement_set_id = Text(placement_set_id, "placement_set_id");
  if (!Classes().parallel_topology.IsInstance(topology)) {
    Refuse("topology must be a ParallelTopology");
  }
  fields.topology = ReadTopology(topology);
  for (nb::handle id : AsTuple(omitted_tensors, "omitted_tensors", "must be a sequence")) {
    fields.omitted_tensors.push_back(Text(id, "omitted_tensors"));
  }
  TensorRows tensors = ReadTensors(tensor_columns);
  FragmentRows rows = ReadFragmentRows(fragment_columns);
  CheckRows(tensors, fields.topology, &rows);
  Result<manifest::PlacementPtr> made = [&]() -> Result<manifest::PlacementPtr> {
    nb::gil_scoped_release release;
    MC_ASSIGN_OR_RETURN(fields.fragments, MakeFragments(rows, tensors.tensors, fields.topology));
    SetOwnership(rows, tensors.owned, fields, &tensors.tensors);
    fields.tensors = std::move(tensors.tensors);
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
