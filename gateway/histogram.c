/* gateway/histogram.c - see histogram.h. */
#include "gateway/histogram.h"

const struct histogram_scale histogram_time = {
    .count = 18,
    .bounds =
        {
            {100, "0.0001"},
            {250, "0.00025"},
            {500, "0.0005"},
            {1000, "0.001"},
            {2500, "0.0025"},
            {5000, "0.005"},
            {10000, "0.01"},
            {25000, "0.025"},
            {50000, "0.05"},
            {100000, "0.1"},
            {250000, "0.25"},
            {500000, "0.5"},
            {1000000, "1"},
            {2500000, "2.5"},
            {5000000, "5"},
            {10000000, "10"},
            {30000000, "30"},
            {60000000, "60"},
        },
    .unit = 1000000,
};

const struct histogram_scale histogram_batch = {
    .count = 11,
    .bounds = {{1, "1"},
               {2, "2"},
               {4, "4"},
               {8, "8"},
               {16, "16"},
               {32, "32"},
               {64, "64"},
               {128, "128"},
               {256, "256"},
               {512, "512"},
               {1024, "1024"}},
    .unit = 1,
};

void histogram_add(struct histogram *histogram, const struct histogram_scale *scale, uint64_t value)
{
    unsigned cell = 0;
    while (cell < scale->count && value > scale->bounds[cell].upto)
        cell++;
    atomic_fetch_add_explicit(&histogram->cells[cell], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

void histogram_read(const struct histogram *histogram, const struct histogram_scale *scale,
                    struct histogram_reading *out)
{
    out->count = 0;
    for (unsigned cell = 0; cell <= scale->count; cell++) {
        out->count += atomic_load_explicit(&histogram->cells[cell], memory_order_relaxed);
        out->upto[cell] = out->count;
    }
    out->sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
}
