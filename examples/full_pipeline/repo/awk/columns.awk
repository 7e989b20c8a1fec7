# Puts the words of all lines below each other, two blanks between columns. No variables.
{
    for (i = 1; i <= NF; i++) {
        cell[NR, i] = $i
        if (length($i) > width[i]) width[i] = length($i)
    }
    cells[NR] = NF
}
END {
    for (row = 1; row <= NR; row++) {
        line = ""
        for (i = 1; i <= cells[row]; i++) {
            line = line cell[row, i]
            if (i < cells[row]) {
                for (fill = width[i] - length(cell[row, i]) + 2; fill > 0; fill--) line = line " "
            }
        }
        print line
    }
}
