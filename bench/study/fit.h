// How a cost grows.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "bench/study/row.h"

namespace qna::bench::study {

// e of y = c x^e, by least squares in logarithms. Points that are not positive do not count; NaN
// with fewer than two different x.
double exponent(std::span<const double> x, std::span<const double> y);

// What is varied while the rest stays.
enum class Sweep { kKernel, kPixels, kDim };

double value_of(Sweep sweep, const Case& shape);

// The rows of a pass along one sweep: of the cases that share all else, those with the most
// different values. Sorted by value; empty if nothing is varied.
Rows sweep_rows(const Rows& rows, Sweep sweep, std::string_view pass);

// Over the measured rows of one subject; `cost` picks the number.
using Cost = std::function<double(const Row&)>;
double growth(const Rows& sweep_rows, Sweep sweep, const std::string& subject, const Cost& cost);

}  // namespace qna::bench::study
