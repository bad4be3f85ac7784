#include "qna/report/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "qna/base/file.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

constexpr size_t kExplorerPart = 2'000'000;  // bytes of the page that it may take

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string sample_figure(const Sample& sample) {
  const std::string confidence =
      std::isfinite(sample.confidence) ? fmt::format(" {:.0f}%", 100 * sample.confidence) : "";
  // A mark besides the colour, for those who do not see it.
  const char* mark = sample.right ? "\xe2\x9c\x93" : "\xe2\x9c\x97";
  const std::string truth =
      sample.right ? ""
                   : fmt::format("<br/><span class=\"soft\">is {}</span>", escape(sample.truth));
  const std::string name =
      sample.name.empty() ? ""
                          : fmt::format("<br/><span class=\"soft\">{}</span>", escape(sample.name));
  return fmt::format(
      "<figure>{}<figcaption><span class=\"{}\">{} {}</span>{}{}{}</figcaption></figure>\n",
      image_tag(shrunk(sample.image, 224), sample.truth), sample.right ? "right" : "wrong", mark,
      escape(sample.predicted), confidence, truth, name);
}

std::string sample_grid(const std::vector<Sample>& samples) {
  std::string html = "<div class=\"pictures\">\n";
  for (const Sample& sample : samples) html += sample_figure(sample);
  return html + "</div>\n";
}

std::string image_grid(const std::vector<viz::Captioned>& images) {
  std::string html = "<div class=\"pictures large\">\n";
  for (const viz::Captioned& each : images) {
    html += fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n",
                        image_tag(shrunk(each.image, 1024), each.caption), escape(each.caption));
  }
  return html + "</div>\n";
}

std::string note_list(const std::vector<std::string>& notes) {
  std::string html = "<ul>\n";
  for (const std::string& note : notes) html += fmt::format("<li>{}</li>\n", escape(note));
  return html + "</ul>\n";
}

}  // namespace

std::string to_html(const TrainingReport& report) {
  std::string body;
  if (!report.summary.empty()) body += description_list("numbers", report.summary);
  if (!report.notes.empty()) body += card("Notes", note_list(report.notes));
  if (!report.charts.empty()) body += chart_grid(report.charts);
  if (!report.confusion.classes.empty()) {
    body += card("What is taken for what", to_html(report.confusion));
  }
  if (!report.samples.empty()) body += card("Samples", sample_grid(report.samples));
  if (!report.attention.empty()) {
    body += card("Where the model looks", image_grid(report.attention));
  }
  if (report.explorer) {
    body += card("Look around in one picture", explorer_html(*report.explorer, kExplorerPart));
  }
  for (const Gallery& gallery : report.galleries) {
    body += card(gallery.title, image_grid(gallery.images));
  }
  if (!report.recipe.empty()) {
    body += card("Recipe", fmt::format("<pre>{}</pre>\n", escape(report.recipe)));
  }
  if (!report.machine.empty()) body += card("Machine", description_list("facts", report.machine));
  return page(report.title, body, report.explorer ? explorer_script() : Script{});
}

void write_report(const std::string& path, const TrainingReport& report) {
  write_file(path, to_html(report));
}

}  // namespace qna::report
