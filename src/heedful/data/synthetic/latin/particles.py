"""Particles: the words that do not decline, and the pronouns.

Prepositions: Latin, case, English, the kinds they go with (letters of `nouns.KINDS`), the tag a
place must carry (or - for any), and of what it is said: rest, company, motion, being in water.
"@" stands for what English says with the place: in the garden, on the island. What stands twice
is drawn twice as often.
"""

from __future__ import annotations

PREPOSITIONS = """
in      ablative    @               lbu   place     rest
in      ablative    @               lb    place     rest
in      ablative    @               lb    place     rest
sub     ablative    under           lbu   under     rest
prope   accusative  near            plbu  -         rest
ante    accusative  in_front_of     lb    front     rest
post    accusative  behind          lb    front     rest
cum     ablative    with            pa    -         company
sine    ablative    without         p     -         company
in      accusative  @to             lb    place     motion
in      accusative  @to             lb    place     motion
ad      accusative  to              plb   -         motion
ad      accusative  to              lb    -         motion
ex      ablative    out_of          lb    in        motion
per     accusative  through         lb    through   motion
trans   accusative  across          lb    across    motion
in      ablative    @               lb    water     water
trans   accusative  across          l     water     water
ad      accusative  to              lb    coast     water
cum     ablative    with            p     -         water
"""

# Latin, English, where English puts it, and the tenses it suits.
ADVERBS = """
semper      always            middle  any
saepe       often             middle  any
interdum    sometimes         middle  any
numquam     never             middle  any
hodie       today             end     any
cotidie     every_day         end     any
nunc        now               end     present
heri        yesterday         end     past
diu         for_a_long_time   end     any
"""

# The same, of deeds only: one cannot be or love quickly.
MANNERS = """
celeriter   quickly           end     any
lente       slowly            end     any
iterum      again             end     any
statim      at_once           end     any
subito      suddenly          middle  any
tandem      finally           middle  any
"""

# Nominative, accusative, dative; English as subject and as object.
PRONOUNS = """
ego  me   mihi   I    me
tu   te   tibi   you  you
nos  nos  nobis  we   us
vos  vos  vobis  you  you
"""
