// Files that break a rule. Each has its own message; none crashes or is half read.
#include <gtest/gtest.h>

#include "qna/coco/annotations.h"
#include "qna/coco/results.h"
#include "tests/support/hostile.h"

namespace qna::coco {
namespace {

using testing::complaint_of;

const std::string kImages = R"([{"id":1,"file_name":"a.jpg","width":9,"height":9}])";
const std::string kCategories = R"([{"id":3,"name":"cat"}])";
const std::string kAnnotations = R"([{"id":5,"image_id":1,"category_id":3,"bbox":[0,0,2,2]}])";

std::string file(const std::string& annotations, const std::string& images = kImages,
                 const std::string& categories = kCategories) {
  return "{\"images\":" + images + ",\"annotations\":" + annotations +
         ",\"categories\":" + categories + "}";
}

// Without the file's name at the beginning.
std::string without_name(const std::string& said) {
  if (said.empty()) return "";
  EXPECT_EQ(said.substr(0, 3), "f: ") << said;
  return said.substr(3);
}

std::string complaint(std::string_view text) {
  return without_name(complaint_of([&] { parse_annotations(text, "f"); }));
}

// Of an annotation with one field more or another; a field that comes first is the one changed.
std::string with(const std::string& field) {
  const std::string key = field.substr(0, field.find(':'));
  std::string fields = field;
  for (const char* other :
       {"\"id\":5", "\"image_id\":1", "\"category_id\":3", "\"bbox\":[0,0,2,2]"}) {
    if (!std::string_view(other).starts_with(key + ":")) fields += std::string(",") + other;
  }
  return complaint(file("[{" + fields + "}]"));
}

std::string result_complaint(std::string_view text) {
  const Annotations truth = parse_annotations(file(kAnnotations), "f");
  return without_name(complaint_of([&] { parse_results(text, "f", truth); }));
}

TEST(HostileAnnotations, TheGoodFileIsGood) {
  EXPECT_EQ(complaint(file(kAnnotations)), "");
  EXPECT_EQ(complaint("\xef\xbb\xbf" + file(kAnnotations)), "");
  EXPECT_EQ(complaint(file("[]", "[]", "[]")), "");
}

TEST(HostileAnnotations, WrongWhole) {
  const std::string rule = "must be an object with the lists images, annotations, categories, got ";
  EXPECT_EQ(complaint("[]"), rule + "a list");
  EXPECT_EQ(complaint("3"), rule + "3");
  EXPECT_EQ(complaint("\"x\""), rule + "'x'");
  EXPECT_EQ(complaint("null"), rule + "null");
  EXPECT_EQ(complaint("{}"), "the list images is missing");
  EXPECT_EQ(complaint("{\"images\":[]}"), "the list annotations is missing");
  EXPECT_EQ(complaint("{\"images\":{}}"), "images must be a list, got an object");
  EXPECT_EQ(complaint("{\"images\":7}"), "images must be a list, got 7");
  EXPECT_EQ(complaint("{\"images\":[],\"images\":[]}"), "the list images comes twice");
  EXPECT_EQ(complaint(file("[4]")), "annotations[0] must be an object, got 4");
  EXPECT_EQ(complaint(file("[[]]")), "annotations[0] must be an object, got a list");
  EXPECT_EQ(complaint(file("[]") + "x").find("not JSON: "), 0u);
  EXPECT_EQ(complaint(std::string_view("{}\0{}", 5)), "holds a zero byte");
}

TEST(HostileAnnotations, NoJson) {
  for (const char* text : {"", " ", "{", "{]", "{\"images\"}", "{\"images\":[}", "{'images':[]}",
                           "{\"images\":[],}", "{/**/}", "{\"\\ud800\":1}", "{\"\xff\":1}"}) {
    EXPECT_EQ(complaint(text).find("not JSON: "), 0u) << text << ": " << complaint(text);
  }
  // What is quoted of the file stays short and printable.
  const std::string said = complaint("{\"" + std::string(5000, '\x7f'));
  EXPECT_LT(said.size(), 1000u);
  EXPECT_EQ(said.find('\x7f'), said.npos);
}

TEST(HostileAnnotations, Nesting) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(complaint("{\"x\":" + deep), "nested too deeply: more than 64 levels");
  EXPECT_EQ(complaint(file("[{\"segmentation\":" + deep)),
            "nested too deeply: more than 64 levels");
  EXPECT_EQ(complaint(file("[{\"bbox\":" + deep)), "nested too deeply: more than 64 levels");
}

TEST(HostileAnnotations, MissingKeys) {
  EXPECT_EQ(complaint(file("[{}]")), "annotations[0]: id is missing");
  EXPECT_EQ(complaint(file(R"([{"id":5}])")), "annotations[0] (id 5): image_id is missing");
  EXPECT_EQ(complaint(file(R"([{"id":5,"image_id":1}])")),
            "annotations[0] (id 5): category_id is missing");
  EXPECT_EQ(complaint(file(R"([{"id":5,"image_id":1,"category_id":3}])")),
            "annotations[0] (id 5): bbox is missing");
  EXPECT_EQ(complaint(file("[]", "[{}]")), "images[0]: id is missing");
  EXPECT_EQ(complaint(file("[]", "[]", R"([{"id":2}])")), "categories[0] (id 2): name is missing");
  // A field of the object before is not this one's.
  EXPECT_EQ(complaint(file(kAnnotations.substr(0, kAnnotations.size() - 1) + R"(,{"id":6}])")),
            "annotations[1] (id 6): image_id is missing");
}

TEST(HostileAnnotations, Boxes) {
  const std::string where = "annotations[0] (id 5): ";
  const std::string four = where + "bbox must be the four numbers [x, y, width, height], got ";
  EXPECT_EQ(with(R"("bbox":[])"), four + "[]");
  EXPECT_EQ(with(R"("bbox":[1,2,3])"), four + "[1, 2, 3]");
  EXPECT_EQ(with(R"("bbox":[1,2,3,4,5])"), four + "[1, 2, 3, 4, ...]");
  EXPECT_EQ(with(R"("bbox":[1,2,"3",4])"), four + "a list of other things than numbers");
  EXPECT_EQ(with(R"("bbox":[[1,2,3,4]])"), four + "a list of other things than numbers");
  EXPECT_EQ(with(R"("bbox":{"x":1})"), four + "an object");
  EXPECT_EQ(with(R"("bbox":null)"), four + "null");
  const std::string size =
      where + "bbox must be a box whose width and height are not negative, got ";
  EXPECT_EQ(with(R"("bbox":[1,2,-3,4])"), size + "[1, 2, -3, 4]");
  EXPECT_EQ(with(R"("bbox":[1,2,3,-0.5])"), size + "[1, 2, 3, -0.5]");
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e999", "-1e999"}) {
    const std::string said = with(R"("bbox":[1,2,3,)" + std::string(number) + "]");
    EXPECT_EQ(said.find("annotations[0]: not JSON: "), 0u) << said;
  }
}

TEST(HostileAnnotations, WrongTypesAndValues) {
  const std::string where = "annotations[0] (id 5): ";
  EXPECT_EQ(with(R"("id":"5")"), "annotations[0]: id must be an integer of 64 bits, got '5'");
  EXPECT_EQ(with(R"("id":1.5)"), "annotations[0]: id must be an integer of 64 bits, got 1.5");
  EXPECT_EQ(with(R"("id":9223372036854775808)"),
            "annotations[0]: id must be an integer of 64 bits, got 9.223372036854776e+18");
  EXPECT_EQ(with(R"("id":true)"), "annotations[0]: id must be an integer of 64 bits, got true");
  EXPECT_EQ(with(R"("iscrowd":2)"), where + "iscrowd must be 0 or 1, got 2");
  EXPECT_EQ(with(R"("iscrowd":"no")"), where + "iscrowd must be 0 or 1, got 'no'");
  EXPECT_EQ(with(R"("ignore":-1)"), where + "ignore must be 0 or 1, got -1");
  EXPECT_EQ(with(R"("area":-1)"), where + "area must not be negative, got -1");
  EXPECT_EQ(with(R"("area":"1")"), where + "area must be a number, got '1'");
  EXPECT_EQ(with(R"("area":1,"area":1)"), "annotations[0]: area comes twice");
  EXPECT_EQ(complaint(file("[]", R"([{"id":1,"width":0}])")),
            "images[0] (id 1): width must be at least 1, got 0");
  EXPECT_EQ(complaint(file("[]", R"([{"id":1,"height":-7}])")),
            "images[0] (id 1): height must be at least 1, got -7");
  EXPECT_EQ(complaint(file("[]", R"([{"id":1,"file_name":7}])")),
            "images[0] (id 1): file_name must be a text, got 7");
  EXPECT_EQ(complaint(file("[]", "[]", R"([{"id":1,"name":[]}])")),
            "categories[0] (id 1): name must be a text, got []");
}

TEST(HostileAnnotations, Ids) {
  EXPECT_EQ(with(R"("image_id":2)"),
            "annotations[0] (id 5): image_id must be an id in images, got 2");
  EXPECT_EQ(with(R"("category_id":1)"),
            "annotations[0] (id 5): category_id must be an id in categories, got 1");
  EXPECT_EQ(complaint(file("[]", R"([{"id":1},{"id":2},{"id":1}])")),
            "images: the id 1 comes twice");
  EXPECT_EQ(complaint(file("[]", "[]", R"([{"id":1,"name":"a"},{"id":1,"name":"b"}])")),
            "categories: the id 1 comes twice");
  const std::string one = kAnnotations.substr(1, kAnnotations.size() - 2);
  EXPECT_EQ(complaint(file("[" + one + "," + one + "]")), "annotations: the id 5 comes twice");
}

TEST(HostileResults, Rules) {
  const std::string good = R"({"image_id":1,"category_id":3,"bbox":[0,0,2,2],"score":1})";
  EXPECT_EQ(result_complaint("[" + good + "]"), "");
  EXPECT_EQ(result_complaint(good), "must be a list of objects, got one object");
  EXPECT_EQ(result_complaint("7"), "must be a list of objects, got 7");
  EXPECT_EQ(result_complaint("[7]"), "results[0] must be an object, got 7");
  EXPECT_EQ(result_complaint("[" + good + R"(,{"image_id":1,"category_id":3,"bbox":[0,0,2,2]}])"),
            "results[1]: score is missing");
  EXPECT_EQ(result_complaint(R"([{"image_id":2,"category_id":3,"bbox":[0,0,2,2],"score":1}])"),
            "results[0]: image_id must be of a picture of the ground truth, got 2");
  EXPECT_EQ(
      result_complaint(R"([{"image_id":1,"category_id":3,"bbox":[0,0,-2,2],"score":1}])"),
      "results[0]: bbox must be a box whose width and height are not negative, got [0, 0, -2, 2]");
  EXPECT_EQ(result_complaint(R"([{"image_id":1,"category_id":3,"bbox":[0,0,2,2],"score":null}])"),
            "results[0]: score must be a number, got null");
  EXPECT_EQ(result_complaint(R"([{"image_id":1,"category_id":3,"bbox":[0,0,2,2],"score":NaN}])")
                .find("results[0]: not JSON: "),
            0u);
}

// A copy of exactly the size, so that the sanitizer sees a read beyond the end.
bool is_refused(std::string_view text, bool results) {
  const std::vector<char> exact(text.begin(), text.end());
  static const Annotations truth = parse_annotations(file(kAnnotations), "f");
  try {
    if (results) {
      parse_results({exact.data(), exact.size()}, "f", truth);
    } else {
      parse_annotations({exact.data(), exact.size()}, "f");
    }
    return false;
  } catch (const Error&) {
    return true;
  }
}

const std::string kLong =
    file(R"([{"id":5,"image_id":1,"category_id":3,"bbox":[0,-1.5,2,2e1],"area":3,"iscrowd":0,)"
         R"("segmentation":[[1,2,3,4]]},{"ignore":0,"id":6,"image_id":1,"category_id":3,)"
         R"("segmentation":{"counts":"a\u00e4b\"","size":[9,9]},"bbox":[0,0,0,0],"x":null}])");
const std::string kLongResults =
    R"([{"image_id":1,"category_id":3,"bbox":[0,-1.5,2,2e1],"score":0.5,"x":[{"y":[true]}]},)"
    R"({"image_id":1,"category_id":4,"bbox":[0,0,0,0],"score":1e-5}])";

TEST(HostileCoco, CutAnywhere) {
  for (const bool results : {false, true}) {
    const std::string& text = results ? kLongResults : kLong;
    EXPECT_FALSE(is_refused(text, results));
    for (size_t size = 0; size < text.size(); ++size) {
      EXPECT_TRUE(is_refused(std::string_view(text).substr(0, size), results)) << size;
    }
  }
}

TEST(HostileCoco, RandomDamage) {
  int refused = 0;
  for (const bool results : {false, true}) {
    testing::with_random_damage(results ? kLongResults : kLong, 5000, [&](std::string_view text) {
      refused += is_refused(text, results) ? 1 : 0;
    });
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace qna::coco
