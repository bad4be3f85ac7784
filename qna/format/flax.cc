#include "qna/format/flax.h"

#include <cstring>
#include <msgpack.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/format/mapped_file.h"
#include "qna/format/text.h"

namespace qna::format {
namespace {

namespace type = msgpack::type;
using msgpack::object;

// The parser makes room for as many members as a map or list claims to have, before it sees them.
// With these limits that is below 100 MB (2^16 members x 48 bytes x 32), and far from any model.
constexpr size_t kMaxMembers = 1 << 16;
constexpr size_t kMaxDepth = 32;
constexpr size_t kNoLimit = 0xffffffff;  // texts and bytes are not copied: the file limits them

// Flax's numbers for what msgpack has no type for.
enum Extension : int8_t { kArray = 1, kComplex = 2, kScalar = 3 };

// Marks a map that stands for one array too large for msgpack, cut into flat pieces.
constexpr char kChunked[] = "__msgpack_chunked_array__";

// In all functions below `where` begins the messages: the file, and the place in it.

// An array whose bytes are those of the file.
struct ArrayView {
  DType dtype;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// For messages.
std::string shown(const object& value) {
  switch (value.type) {
    case type::NIL:
      return "nil";
    case type::BOOLEAN:
      return value.via.boolean ? "true" : "false";
    case type::POSITIVE_INTEGER:
      return fmt::format("{}", value.via.u64);
    case type::NEGATIVE_INTEGER:
      return fmt::format("{}", value.via.i64);
    case type::FLOAT32:
    case type::FLOAT64:
      return fmt::format("{}", value.via.f64);
    case type::STR:
      return in_quotes({value.via.str.ptr, value.via.str.size});
    case type::BIN:
      return "bytes";
    case type::ARRAY:
      return "a list";
    case type::MAP:
      return "a map";
    case type::EXT:
      return "an extension";
  }
  return "something unknown";
}

// The one object that takes up all the bytes. Its texts and bytes point into them.
msgpack::object_handle unpack(std::string_view bytes, const std::string& where) {
  const auto refer = [](type::object_type, size_t, void*) { return true; };
  const msgpack::unpack_limit limit(kMaxMembers, kMaxMembers, kNoLimit, kNoLimit, kNoLimit,
                                    kMaxDepth);
  size_t used = 0;
  msgpack::object_handle handle;
  try {
    handle = msgpack::unpack(bytes.data(), bytes.size(), used, refer, nullptr, limit);
  } catch (const msgpack::insufficient_bytes&) {
    fail("{}: the msgpack data is cut off after {} bytes", where, bytes.size());
  } catch (const msgpack::depth_size_overflow&) {
    fail("{}: the msgpack data is nested deeper than {}", where, kMaxDepth);
  } catch (const msgpack::size_overflow&) {
    fail("{}: a msgpack map or list has more than {} members", where, kMaxMembers);
  } catch (const msgpack::unpack_error&) {
    fail("{}: this is not msgpack data", where);
  }
  check(used == bytes.size(), "{}: {} bytes follow the msgpack data", where, bytes.size() - used);
  return handle;
}

using Members = std::map<std::string, const object*>;

// Of a map. The keys become parts of dotted paths, so dots would make them ambiguous.
Members members_of(const object& map, const std::string& where) {
  Members members;
  for (const auto& [key, value] : std::span(map.via.map.ptr, map.via.map.size)) {
    check(key.type == type::STR, "{}: keys must be strings, got {}", where, shown(key));
    const std::string name(key.via.str.ptr, key.via.str.size);
    check(!name.empty(), "{}: there is an empty key", where);
    check(name.find('.') == name.npos, "{}: the key {} has a dot", where, in_quotes(name));
    check(is_utf8(name), "{}: the key {} is not UTF-8", where, in_quotes(name));
    check(members.emplace(name, &value).second, "{}: there are two keys {}", where,
          in_quotes(name));
  }
  return members;
}

// Flax writes a tuple as a map from "0", "1", ...
std::vector<const object*> items_of(const object& tuple, const std::string& where) {
  std::vector<const object*> items;
  if (tuple.type == type::ARRAY) {
    for (const object& item : std::span(tuple.via.array.ptr, tuple.via.array.size)) {
      items.push_back(&item);
    }
    return items;
  }
  check(tuple.type == type::MAP, "{}: expected a list or a map, got {}", where, shown(tuple));
  const Members members = members_of(tuple, where);
  for (size_t i = 0; i < members.size(); ++i) {
    const auto found = members.find(std::to_string(i));
    check(found != members.end(), "{}: has {} members, but none is '{}'", where, members.size(), i);
    items.push_back(found->second);
  }
  return items;
}

std::vector<int64_t> shape_from(const object& tuple, const std::string& where) {
  std::vector<int64_t> shape;
  for (const object* item : items_of(tuple, where + ": shape")) {
    check(item->type == type::POSITIVE_INTEGER && std::in_range<int64_t>(item->via.u64),
          "{}: shape must hold integers from 0 to 2^63 - 1, got {}", where, shown(*item));
    shape.push_back(item->as<int64_t>());
  }
  return shape;
}

void check_bytes(DType dtype, std::span<const int64_t> shape, size_t bytes,
                 const std::string& where) {
  const std::optional<size_t> wanted = byte_count(dtype, shape);
  check(wanted.has_value(), "{}: shape {} makes 2^63 bytes or more", where, in_brackets(shape));
  check(bytes == *wanted, "{}: {} {} takes {} bytes, got {}", where, numpy_name_of(dtype),
        in_brackets(shape), *wanted, bytes);
}

// The payload of the extension is msgpack again: a list of shape, dtype's name and bytes.
ArrayView array_from(const object& value, const std::string& where) {
  check(value.type == type::EXT, "{}: expected an array, got {}", where, shown(value));
  const int8_t extension = value.via.ext.type();
  check(extension != kComplex, "{}: complex numbers are not supported", where);
  check(extension == kArray || extension == kScalar,
        "{}: the extension type must be {} or {}, got {}", where, int{kArray}, int{kScalar},
        int{extension});
  const msgpack::object_handle handle =
      unpack({value.via.ext.data(), value.via.ext.size}, where + ": array");
  const object& triple = handle.get();
  check(triple.type == type::ARRAY && triple.via.array.size == 3,
        "{}: an array must be a list of shape, dtype and bytes", where);
  const object& dtype_name = triple.via.array.ptr[1];
  const object& bytes = triple.via.array.ptr[2];
  check(dtype_name.type == type::STR, "{}: dtype must be a string, got {}", where,
        shown(dtype_name));
  check(bytes.type == type::BIN, "{}: expected bytes, got {}", where, shown(bytes));

  const std::string_view name(dtype_name.via.str.ptr, dtype_name.via.str.size);
  const std::optional<DType> dtype = dtype_from_numpy_name(name);
  if (!dtype)
    fail("{}: dtype must be one of {}, got {}", where, all_numpy_names(), in_quotes(name));
  const ArrayView array{.dtype = *dtype,
                        .shape = shape_from(triple.via.array.ptr[0], where),
                        .bytes = {bytes.via.bin.ptr, bytes.via.bin.size}};
  check_bytes(array.dtype, array.shape, array.bytes.size(), where);
  return array;
}

void append(std::vector<std::byte>& bytes, std::string_view more) {
  const auto* const begin = reinterpret_cast<const std::byte*>(more.data());
  bytes.insert(bytes.end(), begin, begin + more.size());
}

FlaxArray copy_of(ArrayView view) {
  FlaxArray array{.dtype = view.dtype, .shape = std::move(view.shape), .bytes = {}};
  append(array.bytes, view.bytes);
  return array;
}

FlaxArray join_chunks(const Members& members, const std::string& where) {
  for (const char* key : {kChunked, "shape", "chunks"}) {
    check(members.contains(key), "{}: the chunked array has no {}", where, key);
  }
  check(members.size() == 3, "{}: a chunked array has 3 members, got {}", where, members.size());
  const object& mark = *members.at(kChunked);
  check(mark.type == type::BOOLEAN && mark.via.boolean, "{}: {} must be true, got {}", where,
        kChunked, shown(mark));

  const auto chunks = items_of(*members.at("chunks"), where + ": chunks");
  check(!chunks.empty(), "{}: the chunked array has no chunk", where);
  FlaxArray whole{};
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ArrayView chunk = array_from(*chunks[i], fmt::format("{}: chunk {}", where, i));
    if (i == 0) whole.dtype = chunk.dtype;
    check(chunk.dtype == whole.dtype, "{}: chunk {} is of {}, but the first is of {}", where, i,
          numpy_name_of(chunk.dtype), numpy_name_of(whole.dtype));
    check(chunk.shape.size() == 1, "{}: chunk {} must have 1 dimension, got {}", where, i,
          chunk.shape.size());
    append(whole.bytes, chunk.bytes);
  }
  whole.shape = shape_from(*members.at("shape"), where);
  check_bytes(whole.dtype, whole.shape, whole.bytes.size(), where);
  return whole;
}

template <typename T>
FlaxArray number(DType dtype, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {.dtype = dtype, .shape = {}, .bytes = {bytes.begin(), bytes.end()}};
}

FlaxArray leaf_from(const object& value, const std::string& where) {
  switch (value.type) {
    case type::BOOLEAN:
      return number(DType::kBool, value.via.boolean);
    case type::POSITIVE_INTEGER:
      if (!std::in_range<int64_t>(value.via.u64)) return number(DType::kU64, value.via.u64);
      return number(DType::kI64, static_cast<int64_t>(value.via.u64));
    case type::NEGATIVE_INTEGER:
      return number(DType::kI64, value.via.i64);
    case type::FLOAT32:
    case type::FLOAT64:
      return number(DType::kF64, value.via.f64);
    case type::EXT:
      return copy_of(array_from(value, where));
    default:
      fail("{}: expected a map, an array, a number or nil, got {}", where, shown(value));
  }
}

class Flattener {
 public:
  explicit Flattener(const std::string& origin) : origin_(origin) {}

  // Recursion is safe: unpack() limits the depth.
  void add_members(const object& map, const std::string& prefix) {
    const Members members = members_of(map, where(prefix));
    if (members.contains(kChunked)) {
      check(!prefix.empty(), "{}: a checkpoint must be a map of arrays, got one array", origin_);
      state_.emplace(prefix, join_chunks(members, where(prefix)));
      return;
    }
    for (const auto& [key, value] : members) {
      const std::string path = prefix.empty() ? key : prefix + "." + key;
      if (value->type == type::MAP) {
        add_members(*value, path);
      } else if (value->type != type::NIL) {
        state_.emplace(path, leaf_from(*value, where(path)));
      }
    }
  }

  FlaxState take() { return std::move(state_); }

 private:
  std::string where(const std::string& path) const {
    return path.empty() ? origin_ : fmt::format("{}: {}", origin_, in_quotes(path));
  }

  const std::string& origin_;
  FlaxState state_;
};

}  // namespace

FlaxState parse_flax(std::span<const std::byte> bytes, const std::string& origin) {
  const msgpack::object_handle handle =
      unpack({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, origin);
  const object& root = handle.get();
  check(root.type == type::MAP, "{}: a checkpoint must be a map, got {}", origin, shown(root));
  Flattener flattener(origin);
  flattener.add_members(root, "");
  return flattener.take();
}

FlaxState read_flax(const std::string& path) {
  return parse_flax(MappedFile::open(path)->bytes(), path);
}

}  // namespace qna::format
