# Breaks each line between words. Variables: width (the most characters of a line).
{
    line = ""
    for (i = 1; i <= NF; i++) {
        if (line == "") line = $i
        else if (length(line) + 1 + length($i) <= width) line = line " " $i
        else { print line; line = $i }
    }
    print line
}
