# Sourced by the tests beside it. ids COUNT LENGTH FACTOR: sequences of token ids below 320, others for another FACTOR.
ids() {
  awk -v n="$1" -v length_="$2" -v factor="$3" 'BEGIN {
    printf "["
    for (s = 0; s < n; s++) {
      printf "%s[1", s ? ", " : ""
      for (t = 1; t < length_; t++) printf ", %d", (t * factor + s * 17 + 5) % 320
      printf "]"
    }
    print "]" }'
}
