#include "gluon/radius/decay.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {

Decay::Decay(bool cautious, double weight, std::optional<Schedule> schedule)
    : cautious_(cautious), weight_(weight), schedule_(schedule) {
  GLUON_CHECK(std::isfinite(weight) && weight >= 0, "Decay: the weight decay must be >= 0 and finite, got ", weight);
}

Decay::Decay(double weight) : Decay(false, weight, {}) {}

Decay Decay::decoupled(double weight, std::optional<Schedule> schedule) { return {false, weight, schedule}; }
Decay Decay::cautious(double weight, std::optional<Schedule> schedule) { return {true, weight, schedule}; }

double Decay::weight(int64_t step) const { return schedule_ ? weight_ * schedule_->multiplier(step) : weight_; }

std::optional<double> Decay::constant() const {
  if (weight_ > 0 && (cautious_ || schedule_)) return {};
  return weight_;
}

void Decay::shrink(at::Tensor x, const at::Tensor& heading, const at::Tensor& keep) const {
  if (!cautious_) {
    x.mul_(keep);
    return;
  }
  // Signs, because products of small entries round to 0.
  x.mul_(at::where(heading.sign().mul_(x.sign()) > 0, at::ones_like(keep), keep));
}

std::string Decay::name() const {
  if (!cautious_ && !schedule_) return number_text(weight_);
  const std::string schedule = schedule_ ? join(",", schedule_->name()) : std::string();
  return join(cautious_ ? "cautious(" : "decoupled(", number_text(weight_), schedule, ")");
}

Decay Decay::parse(std::string_view name) {
  const Spec spec = parse_spec(name, "decay");
  const auto& arguments = spec.arguments;
  if ((spec.name == "decoupled" || spec.name == "cautious") && (arguments.size() == 1 || arguments.size() == 2)) {
    return {spec.name == "cautious", parse_number(arguments[0], "decay"),
            arguments.size() == 2 ? std::optional(make_schedule(arguments[1])) : std::nullopt};
  }
  if (arguments.empty() && spec.name.find_first_not_of("+-.0123456789eE") == std::string::npos) {
    return parse_number(spec.name, "decay");
  }
  throw InputError(join("decay: unknown name '", name,
                        "'; allowed are a number, decoupled(WEIGHT[,SCHEDULE]), cautious(WEIGHT[,SCHEDULE])"));
}

}  // namespace gluon
