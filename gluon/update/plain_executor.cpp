#include "gluon/update/plain_executor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <new>

#include "gluon/core/check.h"
#include "gluon/update/sphere_step.h"

namespace gluon {
namespace {

// On the CPU a run that stays in the cache from its momentum to its update is faster than a large one, as long as every
// thread has a matrix; and the allocator keeps memory of this size instead of returning it to the system.
constexpr int64_t kCacheBytes = int64_t{16} << 20;

void accumulate_momentum(const LayerBatch& layers, const BatchStep& batch) {
  if (!layers.momentum().keeps_buffer()) return;
  const at::Tensor buffer = layers.part(layers.buffer(), batch.blocks);
  for (std::size_t i = 0; i < batch.gradients.size(); ++i) {
    const at::Tensor& gradient = batch.gradients[i];
    layers.momentum().accumulate(stacked_block(buffer, i, gradient.sizes()), gradient, batch.step);
  }
}

at::Tensor compute_direction(const BatchStep& batch) {
  try {
    return batch.norm->lmo(batch.momentum);
  } catch (const std::exception&) {
    rethrow_with_layer("norm " + batch.norm->name(), batch.blocks.front());
  }
}

at::Tensor compute_heading(const LayerBatch& layers, const BatchStep& batch) {
  const Normalize& normalize = layers.rule().normalize;
  if (normalize.is_none()) return batch.direction;
  // A norm of the user's own may return another dtype.
  const at::Tensor directions = batch.direction.to(layers.stack_options());
  const at::Tensor second = layers.part(layers.second(), batch.blocks);
  normalize.fold(directions, second, layers.unit());
  return normalize.heading(directions, second, layers.unit());
}

at::Tensor compute_radius(const LayerBatch& layers, const BatchStep& batch, double multiplier) {
  const Rule& rule = layers.rule();
  at::Tensor radius;
  try {
    radius = rule.radius->radius(batch);
    GLUON_CHECK(radius.dim() == 1 && radius.size(0) == batch.momentum.size(0), "expected one radius per matrix, [",
                batch.momentum.size(0), "], got ", radius.sizes());
  } catch (const std::exception&) {
    rethrow_with_layer("radius rule " + rule.radius->name(), batch.blocks.front());
  }
  radius = radius * multiplier;
  if (rule.ball) radius.clamp_max_(*rule.ball);  // a longer step would leave the ball
  return radius;
}

void move_parameters(const BatchStep& batch, const Decay& decay) {
  const at::Tensor headings = batch.heading.to(batch.radius.scalar_type());
  at::Tensor keep;
  if (!decay.is_none()) keep = 1 - batch.radius * decay.weight(batch.step);
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    at::Tensor parameter = batch.blocks[i].of(batch.blocks[i].layer.parameter);
    const at::Tensor heading = headings.select(0, index).reshape(parameter.sizes());
    // In half precision the shrinkage alone would round away; both parts together are rounded once.
    const at::Tensor wide = parameter.to(heading.scalar_type());
    if (!decay.is_none()) decay.shrink(wide, heading, keep[index]);
    wide.addcmul_(heading, batch.radius[index]);
    if (!wide.is_same(parameter)) parameter.copy_(wide);
  }
}

}  // namespace

void PlainExecutor::run(std::span<LayerBatch* const> batches, const StepContext& now) {
  for (LayerBatch* layers : batches) {
    for (const auto& run : scratch_runs(*layers, scratch_bytes_)) {
      BatchStep batch = gather_gradients(*layers, run, now.step);
      accumulate_momentum(*layers, batch);
      batch.momentum = lmo_input(*layers, batch);
      batch.direction = compute_direction(batch);
      batch.heading = compute_heading(*layers, batch);
      batch.radius = compute_radius(*layers, batch, now.multipliers.of(run.front().layer));
      if (layers->sphere()) {
        step_on_sphere(batch, *layers->sphere());
      } else {
        move_parameters(batch, layers->decay());
      }
      layers->set_last_radius(run, batch.radius);
      if (now.observe) now.observe(batch);
    }
    if (now.moved) now.moved(*layers);
  }
}

std::vector<std::span<const Block>> scratch_runs(const LayerBatch& batch, int64_t scratch_bytes) {
  const std::vector<Block>& blocks = batch.blocks();
  const MatrixShape& shape = blocks.front().shape;
  const int64_t stacks = 1 + (batch.momentum().input_is_buffer() ? 0 : 1) +  // the direction, and the LMO's input
                         (batch.rule().normalize.is_none() ? 0 : 2);         // the heading, and its squares
  const at::TensorOptions options = batch.stack_options();
  const int64_t bytes = shape.rows * shape.cols * stacks * static_cast<int64_t>(options.dtype().itemsize());
  int64_t limit = scratch_bytes;
  if (options.device().is_cpu()) limit = std::min(limit, std::max(kCacheBytes, at::get_num_threads() * bytes));
  const auto most = static_cast<std::size_t>(std::max<int64_t>(limit / bytes, 1));

  std::vector<std::span<const Block>> runs;
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t end = first;
    while (end < blocks.size() && end - first < most && blocks[end].layer.parameter.grad().defined()) ++end;
    if (end > first) runs.emplace_back(blocks.data() + first, end - first);
    first = end == first ? first + 1 : end;
  }
  return runs;
}

BatchStep gather_gradients(const LayerBatch& batch, std::span<const Block> run, int64_t step) {
  BatchStep gathered{.blocks = run, .norm = &batch.norm(), .step = step};
  for (const Block& block : run) gathered.gradients.push_back(block.of(block.layer.parameter.grad()));
  return gathered;
}

at::Tensor lmo_input(const LayerBatch& batch, const BatchStep& step) {
  const Momentum& momentum = batch.momentum();
  const at::Tensor buffer = momentum.keeps_buffer() ? batch.part(batch.buffer(), step.blocks) : at::Tensor();
  if (momentum.input_is_buffer()) return buffer;
  const MatrixShape& shape = step.blocks.front().shape;
  at::Tensor input =
      at::empty({static_cast<int64_t>(step.blocks.size()), shape.rows, shape.cols}, batch.stack_options());
  for (std::size_t i = 0; i < step.gradients.size(); ++i) {
    const at::Tensor& gradient = step.gradients[i];
    const at::Tensor kept = buffer.defined() ? stacked_block(buffer, i, gradient.sizes()) : at::Tensor();
    momentum.write_input(stacked_block(input, i, gradient.sizes()), kept, gradient, step.step);
  }
  return input;
}

void rethrow_with_layer(const std::string& what, const Block& block) {
  const std::string place = join(what, ", layer '", block.layer.name, "': ");
  try {
    throw;
  } catch (const InputError& error) {
    throw InputError(place + error.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw std::runtime_error(place + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw std::runtime_error(place + error.what());
  }
}

}  // namespace gluon
