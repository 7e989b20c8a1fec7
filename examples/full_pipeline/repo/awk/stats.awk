# Number, sum, least and greatest of the whole numbers in one field of CSV without quotes.
# Variables: n (which field; the first is 1).
function grouped(rest,    sign, groups) {
    if (rest ~ /^-/) { sign = "-"; rest = substr(rest, 2) }
    while (length(rest) > 3) {
        groups = "," substr(rest, length(rest) - 2) groups
        rest = substr(rest, 1, length(rest) - 3)
    }
    return sign rest groups
}
BEGIN { FS = "," }
{
    sum += $n
    if (NR == 1 || $n + 0 < least) least = $n + 0
    if (NR == 1 || $n + 0 > most) most = $n + 0
}
END { if (NR > 0) print "n=" NR " sum=" grouped(sum "") " min=" grouped(least "") " max=" grouped(most "") }
