#include "qna/tasks/assignment.h"

#include <cmath>
#include <limits>
#include <utility>

#include "qna/base/error.h"

namespace qna::tasks {
namespace {

constexpr int64_t kNone = -1;

// For at most as many workers as jobs: every worker gets a job. cost(worker, job).
//
// Each worker and each job has a price such that no pair costs less than its two prices together,
// and the pairs made so far cost exactly that (complementary slackness: they are optimal). A new
// worker is let in by the cheapest path that alternates between free and made pairs and ends at a
// free job; Dijkstra finds it, as the costs less the prices are not negative.
template <typename Cost>
std::vector<int64_t> jobs_of_workers(int64_t workers, int64_t jobs, const Cost& cost) {
  std::vector<double> worker_price(workers, 0);
  std::vector<double> job_price(jobs, 0);
  std::vector<int64_t> job_of(workers, kNone);
  std::vector<int64_t> worker_of(jobs, kNone);
  std::vector<double> distance(jobs);    // from the new worker
  std::vector<int64_t> came_from(jobs);  // the worker before this job on the shortest path
  std::vector<char> done(jobs);

  for (int64_t fresh = 0; fresh < workers; ++fresh) {
    distance.assign(jobs, std::numeric_limits<double>::infinity());
    came_from.assign(jobs, kNone);
    done.assign(jobs, 0);
    int64_t worker = fresh;
    int64_t last = kNone;
    double walked = 0;
    while (last == kNone) {
      int64_t nearest = kNone;
      for (int64_t job = 0; job < jobs; ++job) {
        if (done[job]) continue;
        const double way = walked + cost(worker, job) - worker_price[worker] - job_price[job];
        if (way < distance[job]) {
          distance[job] = way;
          came_from[job] = worker;
        }
        // Of equally near jobs a free one ends the search.
        if (nearest == kNone || distance[job] < distance[nearest] ||
            (distance[job] == distance[nearest] && worker_of[job] == kNone &&
             worker_of[nearest] != kNone)) {
          nearest = job;
        }
      }
      walked = distance[nearest];
      done[nearest] = 1;
      if (worker_of[nearest] == kNone) {
        last = nearest;
      } else {
        worker = worker_of[nearest];
      }
    }

    worker_price[fresh] += walked;
    for (int64_t job = 0; job < jobs; ++job) {
      if (!done[job] || job == last) continue;
      worker_price[worker_of[job]] += walked - distance[job];
      job_price[job] -= walked - distance[job];
    }
    // Along the path every worker changes over to the job that led on.
    for (int64_t job = last; job != kNone;) {
      const int64_t taker = came_from[job];
      worker_of[job] = taker;
      std::swap(job_of[taker], job);
    }
  }
  return job_of;
}

}  // namespace

std::vector<int64_t> assign(std::span<const double> cost, int64_t rows, int64_t columns) {
  check(rows >= 0 && columns >= 0 && static_cast<int64_t>(cost.size()) == rows * columns,
        "assign: the costs must be {} x {}, got {}", rows, columns, cost.size());
  for (size_t i = 0; i < cost.size(); ++i) {
    check(std::isfinite(cost[i]), "assign: all costs must be finite, got {} in row {}, column {}",
          cost[i], i / columns, i % columns);
  }
  const double* values = cost.data();
  if (rows <= columns) {
    return jobs_of_workers(
        rows, columns, [=](int64_t row, int64_t column) { return values[row * columns + column]; });
  }
  const std::vector<int64_t> row_of = jobs_of_workers(
      columns, rows, [=](int64_t column, int64_t row) { return values[row * columns + column]; });
  std::vector<int64_t> column_of(rows, kNone);
  for (int64_t column = 0; column < columns; ++column) column_of[row_of[column]] = column;
  return column_of;
}

}  // namespace qna::tasks
