// Shared by the tests: small images and archives of them.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/dataset.h"
#include "qna/image/write_png.h"
#include "tests/support/complaint.h"

namespace qna::data::testing {

// An image of one value, so that its pixels say which one it is.
inline image::Image plain_image(uint8_t value, int64_t height = 4, int64_t width = 5) {
  image::Image image = image::make_image(height, width, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  return image;
}

// With the folders above it.
inline void write_image(const std::string& path, const image::Image& image) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  image::write_png(path, image);
}

inline void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string png(uint8_t value) {
  return image::encode_png(plain_image(value), "test picture");
}

// A name that ends in / is a folder; one that begins with > is a symbolic link, and with = a hard
// link, to the content.
using Members = std::vector<std::pair<std::string, std::string>>;

// `compression`: "", "gzip", "bzip2", "xz" or "zstd".
inline void write_tar(const std::string& path, const Members& members,
                      const std::string& compression = "") {
  archive* out = archive_write_new();
  archive_write_set_format_pax(out);  // with pax headers for every member
  if (!compression.empty()) {
    ASSERT_EQ(archive_write_add_filter_by_name(out, compression.c_str()), ARCHIVE_OK);
  }
  ASSERT_EQ(archive_write_open_filename(out, path.c_str()), ARCHIVE_OK);
  for (const auto& [name, content] : members) {
    archive_entry* entry = archive_entry_new();
    const bool is_link = name[0] == '>' || name[0] == '=';
    archive_entry_set_pathname(entry, name.c_str() + (is_link ? 1 : 0));
    archive_entry_set_filetype(entry, name.ends_with('/') ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0755);
    archive_entry_set_size(entry, is_link ? 0 : static_cast<la_int64_t>(content.size()));
    if (name[0] == '>') {
      archive_entry_set_filetype(entry, AE_IFLNK);
      archive_entry_set_symlink(entry, content.c_str());
    }
    if (name[0] == '=') archive_entry_set_hardlink(entry, content.c_str());
    ASSERT_GE(archive_write_header(out, entry), ARCHIVE_WARN) << archive_error_string(out);
    if (!is_link) archive_write_data(out, content.data(), content.size());
    archive_entry_free(entry);
  }
  ASSERT_EQ(archive_write_close(out), ARCHIVE_OK);
  archive_write_free(out);
}

using qna::testing::complaint;
using qna::testing::contains;

// The first pixel of every image, and the label: {value, label}.
inline std::vector<std::pair<int, int64_t>> content_of(const Dataset& dataset) {
  std::vector<std::pair<int, int64_t>> out;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    out.emplace_back(dataset.read(i, 3).pixels.at(0), dataset.label(i));
  }
  return out;
}

using Content = std::vector<std::pair<int, int64_t>>;
using Names = std::vector<std::string>;

}  // namespace qna::data::testing
