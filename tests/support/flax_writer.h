// Writes flax checkpoints, good and bad: each function gives the msgpack bytes of one object, and
// larger objects are made of smaller ones.
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qna::testing::flax {

template <typename Fill>
std::string packed_by(Fill fill) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> packer(buffer);
  fill(packer);
  return {buffer.data(), buffer.size()};
}

// A number, a string, a boolean; or a vector of them as a list.
template <typename T>
std::string value(const T& plain) {
  return packed_by([&](auto& packer) { packer.pack(plain); });
}

inline std::string nil() {
  return packed_by([](auto& packer) { packer.pack_nil(); });
}

inline std::string binary(std::string_view bytes) {
  return packed_by([&](auto& packer) {
    packer.pack_bin(static_cast<uint32_t>(bytes.size()));
    packer.pack_bin_body(bytes.data(), static_cast<uint32_t>(bytes.size()));
  });
}

inline std::string list(const std::vector<std::string>& items) {
  std::string out =
      packed_by([&](auto& packer) { packer.pack_array(static_cast<uint32_t>(items.size())); });
  for (const std::string& item : items) out += item;
  return out;
}

// Keys as packed objects, for keys that should not be.
inline std::string raw_map(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out =
      packed_by([&](auto& packer) { packer.pack_map(static_cast<uint32_t>(members.size())); });
  for (const auto& [key, object] : members) out += key + object;
  return out;
}

inline std::string map(std::vector<std::pair<std::string, std::string>> members) {
  for (auto& [key, object] : members) key = value(key);
  return raw_map(members);
}

// As flax writes tuples.
inline std::string numbered(const std::vector<std::string>& items) {
  std::vector<std::pair<std::string, std::string>> members;
  for (const std::string& item : items) members.emplace_back(std::to_string(members.size()), item);
  return map(members);
}

inline std::string extension(int8_t type, std::string_view payload) {
  return packed_by([&](auto& packer) {
    packer.pack_ext(payload.size(), type);
    packer.pack_ext_body(payload.data(), static_cast<uint32_t>(payload.size()));
  });
}

inline std::string array(const std::vector<int64_t>& shape, const std::string& dtype,
                         std::string_view bytes, int8_t type = 1) {
  return extension(type, list({value(shape), value(dtype), binary(bytes)}));
}

// The shape as a packed object: flax writes a numbered map.
inline std::string chunked(const std::string& shape, const std::vector<std::string>& chunks) {
  return map(
      {{"__msgpack_chunked_array__", value(true)}, {"shape", shape}, {"chunks", numbered(chunks)}});
}

}  // namespace qna::testing::flax
