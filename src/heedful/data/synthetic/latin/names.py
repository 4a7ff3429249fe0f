"""Names: the proper names, and those kept back from training.

A name is the same in English, whatever case it had in Latin: Caecilium is "Caecilius".
"""

from __future__ import annotations

FAMILIAR = """
Caecilius   Caecilii      m
Marcus      Marci         m
Quintus     Quinti        m
Lucius      Lucii         m
Publius     Publii        m
Titus       Titi          m
Sextus      Sexti         m
Decimus     Decimi        m
Aulus       Auli          m
Claudius    Claudii       m
Cornelius   Cornelii      m
Antonius    Antonii       m
Cassius     Cassii        m
Valerius    Valerii       m
Horatius    Horatii       m
Seneca      Senecae       m
Sulla       Sullae        m
Catilina    Catilinae     m
Caesar      Caesaris      m
Cicero      Ciceronis     m
Cato        Catonis       m
Scipio      Scipionis     m
Hannibal    Hannibalis    m
Clemens     Clementis     m
Metella     Metellae      f
Claudia     Claudiae      f
Cornelia    Corneliae     f
Lucretia    Lucretiae     f
Livia       Liviae        f
Melissa     Melissae      f
Flavia      Flaviae       f
Camilla     Camillae      f
Fulvia      Fulviae       f
Diana       Dianae        f
Venus       Veneris       f
Ceres       Cereris       f
"""

RESERVED = """
Octavius    Octavii       m
Vergilius   Vergilii      m
Fabius      Fabii         m
Brutus      Bruti         m
Agrippa     Agrippae      m
Varro       Varronis      m
Drusilla    Drusillae     f
Lavinia     Laviniae      f
Helena      Helenae       f
Minerva     Minervae      f
"""
