def largest_number(exponent_bits, mantissa_bits):
    bias = 2 ** (exponent_bits - 1) - 1
    return (2 - 2.0**-mantissa_bits) * 2.0**bias


def kahan_sum(values, add, subtract):
    total = error = 0.0
    for value in values:
        wanted = subtract(value, error)
        larger = add(total, wanted)
        error = subtract(subtract(larger, total), wanted)
        total = larger
    return total


def short_gain(flops, bytes, flops_per_s, bytes_per_s, factor):
    before = max(flops / flops_per_s, bytes / bytes_per_s)
    return before / max(flops / (factor * flops_per_s), bytes / 2 / bytes_per_s)
